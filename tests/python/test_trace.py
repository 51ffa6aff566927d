"""Arrays are what the file holds."""
import h5py
import ml_dtypes
import numpy as np
import pytest

import kvsim


def test_tensors_are_those_of_the_file(run):
    with h5py.File(run.path) as file:
        for layer in range(run.n_layers):
            for name, read in (("k", run.key), ("v", run.value), ("q", run.query)):
                stored = file[f"layers/{layer:04d}/{name}"]
                raw = np.empty(stored.shape, np.uint16)
                stored.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=stored.id.get_type())
                ours = read(layer, dtype="stored")
                assert ours.dtype == ml_dtypes.bfloat16
                assert np.array_equal(ours.view(np.uint16), raw)
                assert np.array_equal(read(layer), ours.astype(np.float32))
                assert np.array_equal(read(layer, 1), ours[1].astype(np.float32))


def test_what_was_recorded(run):
    assert run.model["n_q_heads"] == 8 and run.model["n_kv_heads"] == 4 and run.elem == "bf16"
    assert run.n_tokens == len(run.tokens) == len(run.positions) == len(run.flags) == len(run.text())
    assert run.key(0).shape == (4, run.n_tokens, 64) and run.query(0).shape == (8, len(run.query_tokens), 64)
    assert run.segments[0]["phase"] == "prompt" and run.segments[-1]["phase"] == "decode"
    assert "".join(run.text()).startswith("<s>The code of the red safe")
    assert run.capture["source"] == "native-cpu"


def test_arrays_own_their_numbers(synthetic):
    keys = kvsim.Trace(synthetic.path).key(0)
    before = keys.copy()
    keys += 1
    assert np.array_equal(synthetic.key(0), before)


def test_errors(run, tmp_path):
    with pytest.raises(kvsim.InputError, match="no-such-file.h5") as caught:
        kvsim.Trace(tmp_path / "no-such-file.h5")
    assert isinstance(caught.value, OSError) and isinstance(caught.value, kvsim.Error)
    with pytest.raises(kvsim.UsageError, match="there is no layer 4"):
        run.key(4)
    with pytest.raises(kvsim.UsageError, match="there is no head 4"):
        run.value(0, 4)
    with pytest.raises(ValueError, match="dtype"):
        run.key(0, dtype="float16")
    damaged = tmp_path / "damaged.h5"
    damaged.write_bytes(open(run.path, "rb").read()[:-1000])
    with pytest.raises(kvsim.InputError):
        kvsim.Trace(damaged)


def test_a_layer_as_xarray(run):
    trace = kvsim.Trace(run)
    layer = trace.to_xarray(1)
    assert layer.k.dims == ("kv_head", "token", "dim") and layer.q.dims == ("q_head", "row", "dim")
    np.testing.assert_array_equal(layer.v.isel(kv_head=0), trace.value(1, 0))
    np.testing.assert_array_equal(layer.q, trace.query(1))
    np.testing.assert_array_equal(layer.position, trace.positions)
    np.testing.assert_array_equal(layer.row_token, trace.query_tokens)
    np.testing.assert_array_equal(trace.model["inv_freq"], h5py.File(run)["model/inv_freq"])
