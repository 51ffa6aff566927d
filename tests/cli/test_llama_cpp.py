#!/usr/bin/env python3
"""What kvsim.llama_cpp has recorded, and what can be tested of it without llama.cpp. tests/golden/engines/record_llama_cpp.py runs it.

Usage: test_llama_cpp.py KVSIM SOURCE_DIR
"""
import json
import math
import shutil
import struct
import subprocess
import sys

import h5py
import numpy as np

from kvsim_command import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tools" / "python"))
from kvsim.llama_cpp.ggml_rope import NORM, Rotation, rotation_of  # noqa: E402 - after the path to it
from kvsim.llama_cpp.state_file import SEQUENCE, SESSION, StateFile  # noqa: E402
from kvsim.writing.stored_elements import WORDS, widen  # noqa: E402
from kvsim.writing.trace_error import TraceError  # noqa: E402

RECORDING = SOURCE / "tests/golden/engines/llama_cpp.h5"


class Recording(CommandTest):
    """llama_cpp.h5: the sample checkpoint as a GGUF file in llama.cpp."""

    def test_it_is_the_run_of_kvsim_capture(self):
        self.assertIn("sound", self.ok("trace", "check", RECORDING))
        with h5py.File(RECORDING) as file:
            ids, prompt = file["tokens/id"][:].tolist(), int(file["segments/count"][0])
            self.assertEqual(file["capture"].attrs["source"], b"converted:llama.cpp")
            self.assertEqual((file["model"].attrs["rope_layout"], file["model"].attrs["attn_scale"]), (b"half_split", 0.125))
        self.assertEqual((len(ids), prompt), (16, 12))
        (self.folder / "ids.json").write_text(json.dumps(ids[:prompt]))
        done = self.kvsim("capture", "--model", SOURCE / "traces/sample/model", "--tokens", "ids.json", "--max-new-tokens", 4,
                          "--ignore-eos", "--elem", "f32", "-o", "native.h5", "--quiet", errors="replace")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No differences beyond the tolerance", self.ok("diff", "native.h5", RECORDING))
        with h5py.File(self.folder / "native.h5") as native, h5py.File(RECORDING) as file:
            self.assertEqual(native["tokens/id"][:].tolist(), ids)
            np.testing.assert_allclose(file["tokens/logprob"][prompt:], native["tokens/logprob"][prompt:], atol=1e-4)

    def test_it_is_replayed(self):
        self.assertIn("snapkv", self.ok("replay", RECORDING, "--policy", "snapkv(window=4)", "--budget", "50%"))


def saved(tokens, cells, layers, magic=SEQUENCE, version=None, streams=1, transposed=False, kind=1, tail=b""):
    """A state file as llama.cpp writes it. cells: (position, number of sequences, sequence). layers: of each (k, v) [cells, numbers];
    v may be None."""
    def tensors(rows, flat):
        raw = rows.astype({0: "<f4", 1: "<f2"}[kind])
        size = raw.dtype.itemsize
        return struct.pack("<i", kind) + (struct.pack("<II", size, raw.shape[1]) + raw.T.tobytes() if flat else
                                          struct.pack("<Q", size * raw.shape[1]) + raw.tobytes())

    version = version or {SEQUENCE: 3, SESSION: 10}.get(magic, 0)
    return b"".join((struct.pack("<III", magic, version, len(tokens)), np.array(tokens, "<i4").tobytes(),
                     struct.pack("<I", 5) + b"llama" if magic == SESSION else b"", struct.pack("<II", streams, len(cells)),
                     np.array(cells, "<i4").tobytes(), struct.pack("<II", transposed, len(layers)),
                     *(tensors(k, False) for k, _ in layers), *(tensors(v, transposed) for _, v in layers if v is not None), tail))


class States(CommandTest):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(1)
        self.layers = [tuple(draw.standard_normal((2, 4, 6), "f4")) for _ in range(2)]
        self.cells = [(place, 1, 0) for place in (2, 0, 1, 3)]  # a cell that was freed is taken by a later token

    def read(self, *arguments, cut=None, **options):
        (self.folder / "s.bin").write_bytes(saved(*arguments, **options)[:cut])
        return StateFile(self.folder / "s.bin")

    def test_rows_in_the_order_of_positions(self):
        for magic, transposed, kind in ((SEQUENCE, False, 1), (SESSION, True, 1), (SEQUENCE, True, 0), (SESSION, False, 0)):
            found = self.read([5, 6, 7, 8], self.cells, self.layers, magic, transposed=transposed, kind=kind)
            self.assertEqual((found.tokens, found.layers, found.transposed), ([5, 6, 7, 8], 2, transposed))
            name = {0: "f32", 1: "f16"}[kind]
            self.assertEqual((found.type_of("k"), found.type_of("v")), (name, name))
            for layer, rows in enumerate(self.layers):
                for of, expected in zip("kv", rows):
                    np.testing.assert_array_equal(widen(found.raw(of, layer).view(WORDS[name]), name),
                                                  expected[[1, 2, 0, 3]].astype({0: "f4", 1: "f2"}[kind]))

    def test_a_file_that_llama_cpp_wrote(self):
        """llama_cpp.state: the prompt of the recording, in a cache of 16 bits without flash attention."""
        found = StateFile(SOURCE / "tests/golden/engines/llama_cpp.state")
        self.assertEqual((found.layers, found.transposed, found.type_of("k"), found.type_of("v")), (4, True, "f16", "f16"))
        with h5py.File(RECORDING) as file:
            count = len(found.tokens)
            self.assertEqual(found.tokens, file["tokens/id"][:count].tolist())
            turns = Rotation(True, 0, file["model/inv_freq"][:])
            for layer in range(4):
                for kind in "kv":
                    rows = widen(found.raw(kind, layer).view(WORDS["f16"]), "f16").reshape(count, 4, -1).transpose(1, 0, 2)
                    expected = file[f"layers/{layer:04d}/{kind}"][:, :count]
                    # Attention reads rounded keys and values, so from the second layer on more than their own rounding differs.
                    np.testing.assert_allclose(turns.half_split(rows) if kind == "k" else rows, expected, rtol=2e-3, atol=2e-2)

    def test_latent_keys_have_no_values(self):
        found = self.read([5, 6, 7, 8], self.cells, [(k, None) for k, _ in self.layers])
        self.assertEqual((found.type_of("k"), found.type_of("v")), ("f16", None))

    def test_what_is_refused(self):
        whole, tokens = len(saved([5, 6, 7, 8], self.cells, self.layers)), [5, 6, 7, 8]
        for cells, options, expected in (
                (self.cells, {"magic": 0x46554747}, "no state file"), (self.cells, {"version": 2}, "has version 2"),
                (self.cells, {"streams": 2}, "2 streams"), ([(0, 1, 0), (1, 1, 1), (2, 1, 0), (3, 1, 0)], {}, "one sequence whole"),
                ([(0, 2, 0), *self.cells[1:]], {}, "several sequences"), ([(place + 1, 1, 0) for place in range(4)], {}, "position 0"),
                ([(place, 1, 0) for place in (0, 1, 1, 2)], {}, "position 0"), (self.cells, {"tail": b"\0" * 8}, "more than one cache"),
                (self.cells, {"cut": 3}, "no state file")):
            with self.subTest(expected), self.assertRaisesRegex(TraceError, expected):
                self.read(tokens, cells, self.layers, **options)
        with self.assertRaisesRegex(TraceError, "4 tokens' keys and values, and 3 token ids"):
            self.read(tokens[:3], self.cells, self.layers)
        keys_alone = whole - len(self.layers) * (12 + 4 * 6 * 2)  # a sound file of latent keys
        for cut in {*range(whole)} - {keys_alone}:
            with self.subTest(cut=cut), self.assertRaises(TraceError):
                self.read(tokens, self.cells, self.layers, cut=cut)


class Frequencies(CommandTest):
    """rotation_of() against frequencies that kvsim read from checkpoints."""

    def of_checkpoint(self, name):
        (self.folder / "ids.json").write_text("[1, 2, 3]")
        folder = SOURCE / "tests/golden/capture" / name
        self.ok("capture", "--model", folder, "--tokens", "ids.json", "--max-new-tokens", 1, "--ignore-eos", "-o", "rope.h5", "--quiet",
                "--overwrite")
        with h5py.File(self.folder / "rope.h5") as file:
            about = file["model"].attrs
            return json.loads((folder / "config.json").read_text()), file["model/inv_freq"][...], about["rope_attention_factor"]

    def params(self, config, pairs, scale=1.0, extrapolation=0.0, trained=0, mode=NORM, fast=32.0):
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        floats = np.array([theta, scale, extrapolation, 1.0, fast, 1.0], "<f4").view("<i4").tolist()
        return [0, 2 * pairs, mode, 0, trained, *floats, 0, 0, 0, 0, 0]

    def test_plain_and_linear(self):
        config, inv_freq, _ = self.of_checkpoint("llama_rope_linear")
        scaling = config.get("rope_scaling") or config["rope_parameters"]
        found = rotation_of(self.params(config, len(inv_freq), 1 / scaling["factor"]), None, 0)
        np.testing.assert_allclose(found.inv_freq, inv_freq, rtol=1e-6)
        plain = rotation_of(self.params(config, len(inv_freq)), None, 0)
        np.testing.assert_allclose(plain.inv_freq, inv_freq * scaling["factor"], rtol=1e-6)

    def test_yarn(self):
        config, inv_freq, factor = self.of_checkpoint("llama_rope_yarn")
        scaling = config.get("rope_scaling") or config["rope_parameters"]
        found = rotation_of(self.params(config, len(inv_freq), 1 / scaling["factor"], 1.0, scaling["original_max_position_embeddings"],
                                        fast=scaling["beta_fast"]), None, 0)
        np.testing.assert_allclose(found.inv_freq, inv_freq, rtol=1e-5)
        self.assertAlmostEqual(found.factor, 1 + 0.1 * math.log(scaling["factor"]), 6)
        self.assertAlmostEqual(found.factor, factor, 6)

    def test_factors_as_of_llama3(self):
        config, inv_freq, _ = self.of_checkpoint("llama_rope_llama3")
        plain = rotation_of(self.params(config, len(inv_freq)), None, 0).inv_freq
        self.assertGreater(np.abs(plain / inv_freq - 1).max(), 1)
        np.testing.assert_allclose(rotation_of(self.params(config, len(inv_freq)), plain / inv_freq, 0).inv_freq, inv_freq, rtol=1e-6)

    def test_positions_on_several_axes_are_refused(self):
        with self.assertRaisesRegex(TraceError, "mode 8"):
            rotation_of(self.params({"rope_theta": 1e4}, 8, mode=8), None, 0)

    def test_halves_keep_products(self):
        draw = np.random.default_rng(1)
        queries, keys = draw.standard_normal((2, 3, 5, 12))
        for rotation in (Rotation(True, 0, np.ones(6)), Rotation(True, 0, np.ones(3)), Rotation(False, 4, np.ones(4)),
                         Rotation(True, 6, np.ones(3))):
            turned, other = rotation.half_split(queries), rotation.half_split(keys)
            np.testing.assert_allclose((turned * other).sum(-1), (queries * keys).sum(-1), rtol=1e-12)
            first, second = (queries[..., rotation.first + i] for i in ((0, 1) if rotation.interleaved else (0, rotation.dims // 2)))
            np.testing.assert_array_equal(turned[..., 0], first)
            np.testing.assert_array_equal(turned[..., rotation.dims // 2], second)


class Command(CommandTest):
    def tool(self, *arguments):
        return subprocess.run([sys.executable, "-m", "kvsim.llama_cpp", *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False, env={"PYTHONPATH": str(SOURCE / "tools/python")})

    def test_help_begins_with_examples(self):
        done = self.tool("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("Examples:\n  kvsim capture --engine llama.cpp "))

    def test_mistakes(self):
        shutil.copy(RECORDING, self.folder / "t.h5")
        for arguments, message in ((["--prompt", "p", "--overwite"], "Did you mean --overwrite"), ([], "--prompt --tokens --chat --state"),
                                   (["--prompt", "p", "-o", "t.h5"], "t.h5: exists already"),
                                   (["--state", "s", "--cache", "q8_0"], "--cache: of a saved state"),
                                   (["--prompt", "p", "--cache", "q3"], "q8_0"), (["--prompt", "p", "--top-k", "5"], "Add --temperature"),
                                   (["--prompt", "p", "--answer-tokens", "a", "--temperature", "1"], "nothing is drawn")):
            done = self.tool("--model", "m.gguf", *arguments, *(() if "-o" in arguments else ("-o", "x")))
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(message, done.stderr)

    def test_what_is_missing_is_said(self):
        (self.folder / "p").write_text("text")
        self.assertNotEqual(subprocess.run([sys.executable, "-c", "import llama_cpp"], capture_output=True, check=False).returncode, 0,
                            "this test is for a Python without llama.cpp")
        done = self.tool("--model", "m.gguf", "--prompt", "p", "-o", "x")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("pip install 'kvsim[llama-cpp]'", done.stderr)
        self.assertIn("llama-cpp]'", self.fails(2, "capture", "--engine", "llama.cpp", "--model", "m.gguf", "-o", "x.h5"))


if __name__ == "__main__":
    main()
