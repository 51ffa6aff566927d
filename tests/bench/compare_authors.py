#!/usr/bin/env python3
"""What authors' own code keeps and what kvsim keeps, of the same queries, keys and values: R-KV, G-KV, RPC, TriAttention, Q-Filters, and
kvpress's BlockPress and ChunkPress over KeyDiffPress.

    python3 tests/bench/compare_authors.py KVSIM CLONES TRACE.h5 OTHER.h5 [--budgets 10%,25%,50%]

CLONES holds R-KV (github.com/Zefan-Cai/R-KV at d15c976), G-KV (microsoft/G-KV, 6db3b2e), ReasoningPathCompression (jiwonsong-dev, 00e64b7),
triattention (WeianMao, c3744ee6) and qfilters (NathanGodey, cda5c38). KVSIM is the program of the build. Needs kvpress 0.5.5, torch,
transformers, numpy and h5py (tools/python_env.sh makes a Python with all but the first). Every method cuts the prompt of TRACE.h5 once;
what TriAttention and Q-Filters know of queries both sides measure on OTHER.h5. Prints per method and budget how many lanes keep other
positions, and how many positions of how many. Values handed to the authors' code are positions, so that what it returns says what it keeps.
"""
import argparse
import contextlib
import csv
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import types

import h5py
import numpy as np
import torch


def load(name, path, **given):
    """A module of a file, of whose package only what is given is there."""
    for part in [name.rsplit(".", i)[0] for i in range(name.count("."), 0, -1)]:
        sys.modules.setdefault(part, types.ModuleType(part)).__path__ = []
    for key, value in given.items():
        setattr(sys.modules[name.rsplit(".", 1)[0]], key, value)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def absent(*names, **given):
    """Packages that are imported and not used."""
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(given)
    yield
    for name in names:
        del sys.modules[name]


class Layer:
    """Queries [1, heads, tokens, dim] and keys [1, KV heads, tokens, dim] of a layer's prompt."""

    def __init__(self, arrays, layer, prompt):
        self.q, self.k = (torch.from_numpy(numbers(arrays[f"layers.{layer}.{name}"])[None, :, :prompt].copy()) for name in "qk")
        # What is kept of the values says which positions.
        self.v = torch.arange(prompt, dtype=torch.float32)[None, None, :, None].expand(self.k.shape).contiguous()


def numbers(stored):  # bf16 comes as its bits
    return ((stored.astype(np.uint32) << 16).view(np.float32) if stored.dtype == np.uint16 else stored).astype(np.float32)


def positions(values):
    return [set(head[:, 0].round().int().tolist()) for head in values[0]]


def r_kv(clones):
    utils = load("rkv.utils", clones / "R-KV/rkv/utils.py")
    module = load("rkv.compression.r1_kv", clones / "R-KV/rkv/compression/r1_kv.py", cal_similarity=utils.cal_similarity,
                  compute_attention_scores=utils.compute_attention_scores)
    return lambda layer, budget, _: positions(
        module.R1KV(budget=budget, window_size=8, mix_lambda=0.1).update_kv(layer.k, layer.q[:, :, -8:], layer.v)[1])


def g_kv(clones):
    # The kernel of its similarity is not asked.
    with absent("triton", "triton.language", jit=lambda function: function, constexpr=None):
        load("gkv.utils.compression_score", clones / "G-KV/gkv/utils/compression_score.py")
    load("gkv.model.sparse_mask", clones / "G-KV/gkv/model/sparse_mask.py")
    module = load("gkv.model.compression.score_based", clones / "G-KV/gkv/model/compression/score_based.py")
    return lambda layer, budget, _: positions(module.ScoreBasedKV(budget=budget, window_size=16, enable_score_cache=True).update_kv(
        layer.k, layer.q[:, :, -16:], layer.v)[1])


def rpc(clones):
    with absent("flash_attn", flash_attn_func=None):
        module = load("rpc.rpc_utils", clones / "ReasoningPathCompression/rpc/rpc_utils.py")

    def kept(layer, budget, _):
        # The whole text is an answer, of which a quarter of four times what may stay before the window stays.
        cluster = module.RPCCluster(P=4 * (budget - 32), selectors="new", num_key_value_groups=layer.q.shape[1] // layer.k.shape[1])
        return positions(cluster.compress_kv(layer.k, layer.v, layer.q[:, :, -32:])[1])

    return kept


def q_filters(clones, other, heads):
    sys.path.insert(0, str(clones / "qfilters"))
    from src.hf_cache import QFiltersCache

    def kept(layer, budget, index):
        queries = torch.from_numpy(numbers(other[f"layers.{index}.q"]))
        u, _, vh = torch.linalg.svd(queries, full_matrices=False)
        most = ((u[..., 0] > 0).float().mean(-1) > 0.5).float() * 2 - 1
        cache = QFiltersCache.__new__(QFiltersCache)
        cache.key_cache, cache.value_cache, cache.max_length, cache.window_length = [], [], budget, 64
        cache.q_filters = [-(most[:, None] * vh[:, 0]).view(heads, -1, vh.shape[-1]).mean(1)]
        # A cache is cut as something joins it.
        cache.update(layer.k[:, :, :0], layer.v[:, :, :0], 0)
        return positions(cache.update(layer.k, layer.v, 0)[1])

    return kept


def kvpress_of(make):
    import kvpress

    press = make(kvpress)

    def kept(layer, budget, _):
        press.compression_ratio = 1 - (budget + 0.5) / layer.k.shape[2]  # it rounds down
        module, hidden = types.SimpleNamespace(head_dim=layer.k.shape[-1]), torch.zeros(1, layer.k.shape[2], layer.k.shape[1])
        return positions(press.compress(module, hidden, layer.k, layer.v, None, {})[1])

    return kept


def triattention(clones, inv_freq, other, prompt):
    sys.path.insert(0, str(clones / "triattention"))
    from triattention.methods import pruning_utils, triattention as theirs

    def rotation(_, at):
        angles = at[0].float()[:, None] * inv_freq[None, :]
        angles = torch.cat([angles, angles], 1)
        return angles.cos()[None], angles.sin()[None]

    def kept(layer, budget, index):
        method = theirs.TriAttention.__new__(theirs.TriAttention)
        dim = layer.k.shape[-1]
        method.config = types.SimpleNamespace(device="cpu", dtype=torch.float32, layer_perhead_aggregation="max")
        method.rotary, method.rope_style, method.attention_scale, method.head_dim = rotation, "half", 1.0, dim
        method.omega, method.freq_scale_sq = inv_freq, torch.ones(dim // 2)
        method.offsets = pruning_utils.build_geometric_offsets(65536, "cpu")
        method.num_attention_heads, method.num_key_value_heads = layer.q.shape[1], layer.k.shape[1]
        method.num_key_value_groups = layer.q.shape[1] // layer.k.shape[1]
        method.normalize_scores, method.generator, method.score_aggregation = True, None, "mean"
        method.disable_mlr = method.disable_trig = False
        method.cache_positions_per_layer_perhead, method.absolute_position = None, prompt
        method.sampled_heads = [(0, head) for head in range(layer.q.shape[1])]
        method.head_stats = {}
        queries = torch.from_numpy(numbers(other[f"layers.{index}.q"]))
        cos, sin = rotation(None, torch.arange(queries.shape[1])[None])
        for head, q in enumerate(queries):
            pairs = pruning_utils.to_complex_pairs(pruning_utils.invert_rope(q, cos[0], sin[0], 1.0))
            method.head_stats[0, head] = pruning_utils.HeadFrequencyStats(pairs.mean(0), pairs.abs().mean(0))
        found = method._select_per_layer_perhead_independent(((layer.k, layer.v),), budget, 0, torch.arange(prompt))
        return [set(head.tolist()) for head in found[0]]

    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "kvsim", "clones", "trace", "other":
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--budgets", default="10%,25%,50%")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folder = pathlib.Path(folder)

        def kvsim(*args):
            subprocess.run([asked.kvsim.absolute(), *map(str, args), "--quiet"], check=True)

        for name, trace in ("run", asked.trace), ("other", asked.other):
            kvsim("trace", "export", trace, "-o", folder / f"{name}.npz")
        for name in "query_frequencies", "q_filters":
            kvsim("calibrate", name, asked.other, "-o", folder / f"{name}.h5")
        arrays, other = np.load(folder / "run.npz"), np.load(folder / "other.npz")
        with h5py.File(asked.trace) as file:
            inv_freq = torch.from_numpy(file["model/inv_freq"][:])
        forms = ["redundancy", "group_peaks", "observation_window(window=32,pool=avg:7,unit=layer)",
                 *(f"{name}(file={folder}/{name}.h5)" for name in ("query_frequencies", "q_filters")),
                 "blockwise", "chunked(base=keydiff.kvpress,size=500)"]
        kvsim("replay", asked.trace, *(text for form in forms for text in ("--policy", form)), "--budget", asked.budgets,
              "--decisions", folder / "held.h5", "--format", "csv", "-o", folder / "rows.csv")
        cells = list(csv.DictReader(open(folder / "rows.csv", newline="")))
        with h5py.File(folder / "held.h5") as file:
            prompt, layers, heads = (int(file.attrs[name]) for name in ("prompt_tokens", "n_layers", "n_kv_heads"))
            theirs = {"redundancy": ("R-KV", r_kv(asked.clones)), "group_peaks": ("G-KV", g_kv(asked.clones)),
                      "observation_window": ("RPC", rpc(asked.clones)),
                      "query_frequencies": ("TriAttention", triattention(asked.clones, inv_freq, other, prompt)),
                      "q_filters": ("Q-Filters", q_filters(asked.clones, other, heads)),
                      "blockwise": ("BlockPress", kvpress_of(lambda presses: presses.BlockPress(presses.KeyDiffPress()))),
                      "chunked": ("ChunkPress", kvpress_of(lambda presses: presses.ChunkPress(presses.KeyDiffPress(), 500)))}
            for cell, row in zip(file["cells"].values(), cells):
                budget = int(cell.attrs["budget_tokens"])
                name, rule = theirs[row["policy"].split("(")[0]]
                pointer, position, first = cell["lane_ptr"][:], cell["position"][:], cell["first_step"][:]
                other_lanes = apart = 0
                for index in range(layers):
                    layer = Layer(arrays, index, prompt)
                    for head, kept in enumerate(rule(layer, budget, index)):
                        part = slice(pointer[index * heads + head], pointer[index * heads + head + 1])
                        ours = set(position[part][first[part] == 0].tolist())
                        other_lanes += ours != kept
                        apart += len(ours - kept)
                        assert len(ours) == len(kept), (name, len(ours), len(kept))
                print(f"{name:13} {budget:5} of {prompt} tokens: {other_lanes} of {layers * heads} lanes keep other positions, "
                      f"{apart} of {budget * layers * heads} positions", flush=True)


if __name__ == "__main__":
    main()
