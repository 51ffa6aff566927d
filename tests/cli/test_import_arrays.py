#!/usr/bin/env python3
"""Tests tools/python/import_arrays.py: the arrays of a trace give the same trace again, and arrays that are not a run
are refused.

Usage: test_import_arrays.py KVSIM SOURCE_DIR
"""
import contextlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import types
import zipfile

import h5py
import numpy as np

from kvsim_command import METRIC_KEYS, SOURCE, CommandTest, main, without_digests

sys.path.insert(0, str(SOURCE / "tools" / "python"))
import import_arrays  # noqa: E402 - after the path to it
from kvsim.writing.trace_file import TraceWriter  # noqa: E402
from kvsim.writing.trace_header import Capture, Header, Model, Segment  # noqa: E402

DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64", "float64": "F64"}


def write_safetensors(path, arrays):
    """Writes float32, float16 and integers; uint16 holds bfloat16 bits."""
    header, data = {}, b""
    for name, values in arrays.items():
        values = np.ascontiguousarray(values)
        header[name] = {"dtype": DTYPES[values.dtype.name], "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def arrays_of(path, bits=False):
    """The arrays that an exporter would have: q, k, v per layer, tokens and frequencies. `bits`: bfloat16 as uint16."""
    with h5py.File(path) as file:
        arrays = {"token_ids": file["tokens/id"][...].astype("i8"), "inv_freq": file["model/inv_freq"][...]}
        for layer, group in file["layers"].items():
            for name in ("q", "k", "v"):
                values = group[name][...]
                arrays[f"layers.{int(layer)}.{name}"] = (values.view("<u4") >> 16).astype("<u2") if bits else values
            if "q_token" in group:
                arrays["q_token"] = group["q_token"][...].astype("i8")
    return arrays


class ImportArrays(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        capture = ["capture", "--model", SOURCE / "traces/sample/model", "--prompt", "prompt.txt", "--max-new-tokens", "8",
                   "--quiet"]
        (cls.folder / "prompt.txt").write_text("The cache of keys and values grows with every token. " * 4)
        for name, *options in (["run.h5", "--elem", "f32"], ["bf16.h5", "--elem", "bf16"],
                               ["slim.h5", "--elem", "f16", "--queries", "window:16"],
                               ["rows.h5", "--elem", "f32", "--queries", "window:1", "--attention", "full"]):
            made = cls.kvsim(*capture, *options, "-o", name)
            assert made.returncode == 0, made.stderr
        with h5py.File(cls.folder / "run.h5") as file:
            cls.prompt_tokens = int(file["segments/count"][0])
            cls.tokens = int(file.attrs["n_tokens"])
            theta = str(file["model"].attrs["rope_theta"])
        cls.told = ["--layout", "half_split", "--theta", theta, "--prompt-tokens", str(cls.prompt_tokens)]
        cls.arrays = arrays_of(cls.folder / "run.h5")

    def imported(self, *arguments):
        """Runs the command in this process, because starting Python and h5py takes longer than most imports."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = import_arrays.main([str(argument) for argument in arguments])
        return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())

    def test_sigterm_is_an_interruption(self):
        os.mkfifo(self.folder / "config.json")
        work = subprocess.Popen(["/usr/bin/python3", SOURCE / "tools/python/import_arrays.py", self.npz("z.npz"), *self.told,
                                 "--config", "config.json", "-o", "stopped.h5"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.addCleanup(work.kill)
        writer = os.open(self.folder / "config.json", os.O_WRONLY)  # returns when the other side reads
        work.terminate()
        _, said = work.communicate(timeout=60)
        os.close(writer)
        self.assertEqual((work.returncode, said), (4, "import_arrays.py: interrupted\n"))
        self.assertEqual(list(self.folder.glob("stopped.h5*")), [])

    def test_as_a_command(self):
        done = subprocess.run(["/usr/bin/python3", SOURCE / "tools/python/import_arrays.py", self.npz("z.npz"), *self.told, "-o", "z.h5"],
                              cwd=self.folder, capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("4 layers, 8 query and 4 KV heads of 64", done.stdout)
        self.refused(2, "exists already", "z.npz", *self.told, "-o", "z.h5")

    def makes(self, *arguments):
        done = self.imported(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)

    def refused(self, code, what, *arguments):
        done = self.imported("-o", "refused.h5", *arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(what, done.stderr)
        self.assertTrue(done.stderr.startswith("import_arrays.py: "))
        self.assertEqual(list(self.folder.glob("refused.h5*")), [])

    def npz(self, name, arrays=None, **changed):
        kept = {key: value for key, value in ({**(arrays or self.arrays), **changed}).items() if value is not None}
        np.savez(self.folder / name, **kept)
        return name

    def same_run(self, native, imported, *seeded):
        self.ok("trace", "check", imported, "-q")
        self.assertIn("No differences", self.ok("diff", native, imported, "--tolerance", "0", "--quiet"))
        replay = ["--policy", "h2o", "--policy", "snapkv", *seeded, "--budget", "25%,16", "--per", "head"]
        results = [self.rows(name, *replay) for name in (native, imported)]
        for row in results[0] + results[1]:
            row.pop("trace")
        self.assertEqual(*results)

    def test_what_trace_export_wrote_gives_the_same_run(self):
        for trace, end in (("run.h5", "npz"), ("bf16.h5", "safetensors"), ("slim.h5", "npz"), ("slim.h5", "safetensors"),
                           ("rows.h5", "npz"), ("rows.h5", "safetensors")):
            self.ok("trace", "export", trace, "-o", f"export.{end}", "--overwrite", "--quiet")
            self.makes(f"export.{end}", "--layout", "half_split", "--prompt-tokens", self.prompt_tokens, "--overwrite", "-o", "again.h5")
            self.same_run(trace, "again.h5")
        with h5py.File(self.folder / "rows.h5") as a, h5py.File(self.folder / "again.h5") as b:
            for layer, name in ((layer, name) for layer in range(4) for name in ("token", "ptr", "p")):
                np.testing.assert_array_equal(a[f"layers/{layer:04d}/rows/{name}"], b[f"layers/{layer:04d}/rows/{name}"])
        with np.load(self.folder / "export.npz") as arrays:
            moved = {**arrays, "attention_token": arrays["attention_token"] - 1}
        moved = self.npz("moved.npz", {key: values for key, values in moved.items() if not key.endswith(".q") and key != "q_token"})
        self.refused(3, f"attention_token: is not the last {self.tokens} tokens", moved, *self.told)

    def test_exported_column_statistics(self):
        self.ok("trace", "export", "slim.h5", "-o", "sums.npz", "--quiet")
        with np.load(self.folder / "sums.npz") as file, h5py.File(self.folder / "slim.h5") as trace:
            arrays = dict(file)
            for layer, name in ((layer, name) for layer in range(4) for name in ("sum", "sum_squares")):
                found = arrays[f"layers.{layer}.column_{name}"]
                self.assertEqual(found.shape, (8, self.prompt_tokens))
                np.testing.assert_array_equal(found, trace[f"layers/{layer:04d}/column/{name}"])
        last = arrays["layers.3.column_sum"]
        for changed, what in ({"layers.3.column_sum": None}, "no column_sum of layer 3"), \
                ({"layers.3.column_sum": -last}, "negative"), ({"layers.3.column_sum": last[:7]}, "in layer 3, [8, "), \
                ({f"layers.{layer}.{name}": last[:, :9] for layer in range(4) for name in ("column_sum", "column_sum_squares")},
                 "counts 9 tokens; the prompt has"), ({"layers.0.column_sum": last[None, None]}, "are two axes"):
            self.refused(3, what, self.npz("sums.npz", arrays, **changed), *self.told)

    def test_exported_attention_lies_at_the_tokens_that_it_is_of(self):
        """Two sequences that share their beginning, a window, and rows of some tokens only."""
        segments = [Segment(3), Segment(2, 0), Segment(2, 0), Segment(1, 2)]  # tokens 0-2; 3, 4; 5, 6; 7
        seen = {2: [1, 2], 4: [2, 3, 4], 7: [2, 5, 6, 7]}  # by file order; of token 2 the window leaves two
        first_key = {2: 1, 4: 2, 7: 2}
        draw = np.random.default_rng(1)
        model = Model(1, 2, 1, 4, 10, rotary_dim=4)
        expected = np.zeros((2, 3, 8), "f4")
        with TraceWriter(str(self.folder / "tree.h5"), model, "f32", queries=False) as writer:
            for tensor in "kv":
                writer.append(tensor, 0, draw.random((1, 8, 4), "f4"))
            for row, (token, keys) in enumerate(seen.items()):
                p = draw.dirichlet(np.ones(len(keys)), 2).astype("f4")
                expected[:, row, keys] = p
                writer.append_attention(0, first_key[token], p)
            writer.finish(Header(Capture("converted:test", q_policy="none", row_policy="window:1"), range(8), segments,
                                 attention_token=list(seen)))
        for end in "npz", "safetensors":
            self.ok("trace", "export", "tree.h5", "-o", f"tree.{end}", "--quiet")
        with np.load(self.folder / "tree.npz") as arrays:
            np.testing.assert_array_equal(arrays["layers.0.attention"], expected)
            self.assertEqual(arrays["attention_token"].tolist(), list(seen))
        data = (self.folder / "tree.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        begin, end = json.loads(data[8:8 + length])["layers.0.attention"]["data_offsets"]
        np.testing.assert_array_equal(np.frombuffer(data[8 + length:][begin:end], "<f4").reshape(expected.shape), expected)

    def test_values_that_begin_with_a_minus_sign(self):
        self.makes(self.npz("w.npz"), *self.told, "--window", "-1,20,-1,8", "-o", "w.h5")
        with h5py.File(self.folder / "w.h5") as file:
            self.assertEqual(file["model/layer_window"][...].tolist(), [-1, 20, -1, 8])
        for option, value, what in (("--window", "-1,20", "2 windows for 4 layers"), ("--window", "-2,20", "is no window"),
                                    ("--scale", "-1e3", "is not a number"), ("--softcap", "-.5e1", "is not a number"),
                                    ("--vocab-size", "-1,000", "is not a whole number")):
            with self.subTest(option, value=value):
                self.refused(3 if "layers" in what else 2, what, "w.npz", *self.told, option, value)
        self.refused(2, "unknown option -w", "w.npz", *self.told, "-w", "8")

    def test_npz_by_layer(self):
        self.makes(self.npz("a.npz"), *self.told, "-o", "a.h5")
        self.same_run("run.h5", "a.h5", "--policy", "random")

    def test_stacked_safetensors(self):
        stacked = {name: np.stack([self.arrays[f"layers.{layer}.{name}"] for layer in range(4)]) for name in "qkv"}
        write_safetensors(self.folder / "b.safetensors", stacked)
        write_safetensors(self.folder / "ids.safetensors", {"token_ids": self.arrays["token_ids"]})
        config = SOURCE / "traces/sample/model/config.json"
        self.makes("b.safetensors", "ids.safetensors", "--layout", "half_split", "--config", config, "--prompt-tokens",
                   str(self.prompt_tokens), "-o", "b.h5")
        self.same_run("run.h5", "b.h5", "--policy", "random")
        with h5py.File(self.folder / "b.h5") as file:
            self.assertEqual(file["model/config_json"][...].tobytes(), config.read_bytes())
        # Without ids there is nothing to compare, and nothing but the seed and the length to draw by.
        self.makes(self.npz("c.npz", stacked), *self.told, "-o", "c.h5")
        self.same_run("run.h5", "c.h5")
        losses = lambda *which: [row["attention_loss"] for row in self.rows(*which, "--policy", "random", "--budget", "25%")]
        self.assertNotEqual(losses("c.h5"), losses("run.h5"))
        self.assertNotEqual(losses("c.h5"), losses("c.h5", "--seed", "1"))

    def test_sixteen_bits(self):
        bits = arrays_of(self.folder / "bf16.h5", bits=True)
        frequencies = bits.pop("inv_freq")
        write_safetensors(self.folder / "d.safetensors", bits)
        self.makes("d.safetensors", self.npz("f.npz", {"inv_freq": frequencies}), *self.told, "-o", "d.h5")
        self.same_run("bf16.h5", "d.h5")
        self.makes(self.npz("e.npz", bits), *self.told, "--elem", "bf16", "-o", "e.h5")
        self.same_run("bf16.h5", "e.h5")
        self.refused(3, "Choose one: --elem", self.npz("e.npz", bits), *self.told)

    def test_some_queries(self):
        slim = arrays_of(self.folder / "slim.h5")
        self.makes(self.npz("g.npz", slim), *self.told, "-o", "g.h5")
        self.assertIn("No differences", self.ok("diff", "slim.h5", "g.h5", "--tolerance", "0", "--quiet"))
        with h5py.File(self.folder / "slim.h5") as a, h5py.File(self.folder / "g.h5") as b:
            self.assertEqual(a["capture"].attrs["q_policy"], b["capture"].attrs["q_policy"])
        self.refused(3, "whose they are", self.npz("g.npz", slim, q_token=None), *self.told)
        self.refused(3, "does not ascend", self.npz("g.npz", slim, q_token=slim["q_token"][::-1]), *self.told)

    def test_attention_rows_in_place_of_queries(self):
        """Every policy replays as with queries, or is refused by name: rows that were imported, and rows of a capture that lacks
        the queries of its prompt."""
        arrays = {key: values for key, values in self.arrays.items() if not key.endswith(".q")}
        with h5py.File(self.folder / "rows.h5") as file:
            for layer, group in file["layers"].items():
                p, ends = group["rows/p"][...], group["rows/ptr"][...].astype(int)
                attention = arrays[f"layers.{int(layer)}.attention"] = np.zeros((p.shape[0], self.tokens, self.tokens), "f4")
                for token, (begin, end) in enumerate(zip(ends, ends[1:])):
                    attention[:, token, :token + 1] = p[:, begin:end]
        self.makes(self.npz("rows.npz", arrays), *self.told, "-o", "imported.h5")
        self.ok("trace", "check", "imported.h5", "-q")
        self.assertIn("No differences", self.ok("diff", "run.h5", "imported.h5", "--tolerance", "0", "--quiet"))
        for line in r"query rows +none", r"lacking +queries", r"attention rows +" + str(self.tokens):
            self.assertRegex(self.ok("trace", "info", "imported.h5"), line)
        asked = ["--policy", "all", "--policy", "oracles", "--policy", "full+quest", "--policy", "full+int8", "--budget", "50%,40", "--cut",
                 "prompt,20"]
        cell = lambda row: (row["params"], row["budget"], row["cut"])
        whole = {cell(row): row for row in self.rows("run.h5", *asked)}
        need_queries = {"attention_matching", "cap_kv", "chunked", "compactor", "d2o", "expected_attention", "full+int8", "full+quest", "future_max_logit", "g_kv",
                        "hashevict", "instinfer", "matching_pursuit", "non_causal", "periodic", "q_filters", "query_frequencies", "r_kv",
                        "razor_attention", "redundancy", "reference_attention", "retrieval_attention", "rocketkv", "rpc", "shadowkv",
                        "triattention"}
        for name in "rows.h5", "imported.h5":
            refused = set()
            for row in self.rows(name, *asked):
                same = whole[cell(row)]
                if row["kept_tokens"] is None and same["kept_tokens"] is not None:
                    refused.add(row["policy"])
                    continue
                for key in METRIC_KEYS:
                    with self.subTest(name, policy=row["params"], metric=key):
                        self.assertEqual(row[key] is None, same[key] is None)
                        if row[key] is not None:
                            # Of outputs that floats give to some 1e-6, directions divide by the share that is lost: 1e-4 of rows that
                            # have lost 1 %, and ten times that where most have lost less, whose weights are small.
                            near = 1e-3 if key.startswith("direction") else 1e-5
                            self.assertAlmostEqual(row[key], same[key], delta=near * max(1, abs(same[key])))
            # The importer is told no classes of tokens, which fastgen needs.
            self.assertEqual(refused, need_queries | ({"fastgen"} if name == "imported.h5" else set()))
        said = self.kvsim("replay", "imported.h5", *asked, "--format", "csv", "-o", "some.csv").stderr
        for policy in need_queries - {"attention_matching", "d2o", "razor_attention", "instinfer", "retrieval_attention", "shadowkv", "rocketkv"}:
            self.assertRegex(said, rf"skipped: [^\n]*{re.escape(policy)}[^\n]* at .*needs the queries of [^\n]*\n +Capture with --queries all")
        spoilt = {**arrays, "layers.2.attention": arrays["layers.2.attention"] * np.float32(0.5)}
        self.refused(3, "no distribution over the", self.npz("rows.npz", spoilt), *self.told)
        short = {key: values[..., :-1] if "attention" in key else values for key, values in arrays.items()}
        self.refused(3, "Expected attention [Hq, R, N]", self.npz("rows.npz", short), *self.told)
        (self.folder / "cut.h5").write_bytes((self.folder / "imported.h5").read_bytes())
        with h5py.File(self.folder / "cut.h5", "r+") as file:
            without_digests(file)
            file["layers/0001/rows/p"][3, 5] = np.nan
        self.assertRegex(self.fails(3, "replay", "cut.h5", "--policy", "h2o", "--budget", "50%", "--quiet"),
                         r"attention of layer 1, head 3, position 2 is nan")

    def test_before_rope(self):
        """Unrotates with complex numbers here, in either layout; the importer rotates again."""
        frequencies = self.arrays["inv_freq"].astype("f8")
        turn = np.exp(-1j * np.arange(self.tokens)[:, None] * frequencies)
        half = len(frequencies)
        flat, woven, expected = {}, {}, {}
        for key in [key for key in self.arrays if key.endswith((".q", ".k"))]:
            rows = self.arrays[key].astype("f8")
            before = (rows[..., :half] + 1j * rows[..., half:]) * turn
            flat[key + "_pre"] = np.concatenate([before.real, before.imag], -1)
            woven[key + "_pre"] = np.stack([before.real, before.imag], -1).reshape(rows.shape)
            expected[key] = np.stack([rows[..., :half], rows[..., half:]], -1).reshape(rows.shape).astype("f4")
        without = dict.fromkeys(expected)
        told = [*self.told, "--elem", "f32"]
        self.makes(self.npz("h.npz", **without, **flat), *told, "-o", "h.h5")
        self.assertIn("No differences", self.ok("diff", "run.h5", "h.h5", "--tolerance", "1e-6", "--quiet"))
        told[1] = "interleaved"
        self.makes(self.npz("i.npz", **without, **woven), *told, "-o", "i.h5")
        self.makes(self.npz("j.npz", **expected), *told, "-o", "j.h5")
        self.assertIn("No differences", self.ok("diff", "i.h5", "j.h5", "--tolerance", "1e-6", "--quiet"))
        self.refused(3, "both q and q_pre", self.npz("h.npz", **flat), *told)
        self.refused(3, "Call them q and k", self.npz("h.npz", **without, **flat, inv_freq=None), "--layout", "none",
                     "--elem", "f32")

    def test_what_does_not_belong_together(self):
        key = self.arrays["layers.1.k"]
        for what, changed in (("is [4, 3, 64] in layer 1", {"layers.1.k": key[:, :3]}),
                              ("there is no v of layer 2", {"layers.2.v": None}),
                              ("no name of an array to import", {"layers.0.keys": key}),
                              ("one by one", {"k": key[None]}),
                              ("Import one sequence at a time", {"layers.0.k": np.stack([key, key])}),
                              ("not finite", {"layers.1.k": np.where(key == key[0, 0, 0], np.nan, key)}),
                              ("whole numbers", {"token_ids": np.arange(3)}),
                              ("out of range", {"token_ids": self.arrays["token_ids"] - 9999}),
                              ("no type of a tensor", {"layers.1.k": key.astype("i4")})):
            told = self.told if "type" not in what else [*self.told, "--elem", "f32"]
            with self.subTest(what):
                self.refused(3, what, self.npz("bad.npz", **changed), *told)
        self.refused(3, "not finite as f16", self.npz("bad.npz", **{"layers.1.v": self.arrays["layers.1.v"] * 1e6}),
                     *self.told, "--elem", "f16")
        self.refused(3, "holds token_ids", self.npz("x.npz"), self.npz("y.npz"), *self.told)
        self.refused(3, "--prompt-tokens", self.npz("x.npz"), *self.told[:-1], "5000")
        self.refused(3, "windows for 4 layers", self.npz("x.npz"), *self.told, "--window", "8,-1")
        self.refused(3, "how fast RoPE turns", self.npz("x.npz", inv_freq=None), "--layout", "half_split")
        self.refused(2, "Did you mean --theta", self.npz("x.npz"), *self.told, "--thetta", "1")
        self.refused(2, "--layout", self.npz("x.npz"))

    def test_hostile_safetensors(self):
        def entry(begin, end, shape, dtype="F32"):
            return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

        def write(header, data=b"\0" * 64, length=None):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            (self.folder / "x.safetensors").write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)

        for what, *made in (("holes or overlap", {"k": entry(0, 32, [8]), "q": entry(16, 64, [12])}),
                            ("header tells of", {"k": entry(0, 32, [8])}),
                            ("takes 64 bytes", {"k": entry(0, 64, [1 << 31, 1 << 31])}),  # the product wraps to 0 in 64 bits
                            ("no acceptable shape", {"k": entry(0, 64, [1 << 40])}),
                            ("no acceptable shape", {"k": entry(0, 64, [True, 16])}),
                            ("no sound entry", {"k": entry(64, 0, [16])}),
                            ("no sound entry", {"k": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64, 1]}}),
                            ("no sound entry", {"k": 3}),
                            ("a name occurs twice", b'{"k": 1, "k": 1}'),
                            ("no safetensors header", b"[" * 5000), ("no safetensors header", b"[]"),
                            ("neither npz nor safetensors", {}, b"", 1 << 60)):
            write(*made)
            with self.subTest(what):
                self.refused(3, what, "x.safetensors", *self.told)
        write({"layers.0.k": entry(0, 64, [1, 64, 1], "F8_E4M3"), "layers.0.q": entry(64, 128, [1, 16, 1]),
               "layers.0.v": entry(128, 192, [1, 16, 1])}, bytes(192))
        self.refused(3, "do not belong together", "x.safetensors", *self.told)

    def test_hostile_npz(self):
        def write(name, data, **info):
            with zipfile.ZipFile(self.folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(name, data)

        def npy(shape, data, kind="<f4"):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": shape})
            return head.getvalue() + data

        for what, data in (("another size", npy((1 << 31, 1 << 31), b"\0" * 64)), ("no acceptable shape", npy((-1,), b"\0" * 64)),
                           ("not numbers", npy((1,), b"\0" * 8, "|O")), ("is no array", b"\x93NUMPY\x09\x00"),
                           ("is no array", b"text")):
            write("k.npy", data)
            with self.subTest(what):
                self.refused(3, what, "x.npz", *self.told)
        whole = (self.folder / self.npz("y.npz")).read_bytes()
        (self.folder / "y.npz").write_bytes(whole[:len(whole) // 2])
        self.refused(3, "damaged", "y.npz", *self.told)


if __name__ == "__main__":
    sys.exit(main())
