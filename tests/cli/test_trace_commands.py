#!/usr/bin/env python3
"""Tests kvsim trace: the output of info, check and generate."""
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import fields

import h5py
import numpy as np

import kvsim_command
from kvsim_command import SOURCE, CommandTest, without_digests

sys.path.insert(0, str(SOURCE / "tools/python"))
from kvsim.writing.trace_file import TraceWriter  # noqa: E402 - after the path to it
from kvsim.writing.trace_header import Capture, Header, Model, Pass, Segment  # noqa: E402


class Info(CommandTest):
    def test_table_says_what_is_in_it(self):
        page = self.ok("trace", "info", "t.h5")
        for text in ("synthetic", "3, full attention", "4 query, 2 KV (group 2), dimension 16",
                     "108: 96 prompt, 12 decode", "query rows        all 108", "not recorded"):
            self.assertIn(text, page)

    def test_json_says_the_same(self):
        page = json.loads(self.ok("trace", "info", "t.h5", "--format", "json"))
        self.assertEqual(page["model"]["n_layers"], 3)
        self.assertEqual(page["n_tokens"], 108)
        self.assertEqual(page["prompt"], {"tokens": 96, "passes": 1, "duration_ns": None})
        self.assertEqual(page["decode"], {"tokens": 12, "passes": 12, "duration_ns": None})
        self.assertEqual(page["stored"]["key_bytes"], 3 * 2 * 108 * 16 * 4)
        self.assertEqual(page["stored"]["query_bytes"], 2 * page["stored"]["key_bytes"])
        self.assertEqual(page["file_bytes"], (self.folder / "t.h5").stat().st_size)
        self.assertRegex(page["content_sha256"], "^[0-9a-f]{64}$")

    def test_text_from_a_file_does_not_steer_the_terminal(self):
        shutil.copy(self.folder / "t.h5", self.folder / "evil.h5")
        with h5py.File(self.folder / "evil.h5", "r+") as file:
            file["model"].attrs.create("name", np.bytes_(b"\x1b[2Jhello\n"))
        page = self.ok("trace", "info", "evil.h5")
        self.assertNotIn("\x1b", page)
        self.assertIn("?[2Jhello?", page)

    def test_what_is_no_trace_is_refused(self):
        (self.folder / "text").write_text("hello")
        with h5py.File(self.folder / "foreign.h5", "w") as file:
            file["x"] = [1, 2, 3]
        self.assertIn("text: is not an HDF5 file", self.fails(3, "trace", "info", "text"))
        self.assertIn("foreign.h5: is an HDF5 file, but not a kvsim trace", self.fails(3, "trace", "info", "foreign.h5"))
        self.assertIn("none.h5: No such file", self.fails(3, "trace", "info", "none.h5"))
        self.assertIn("is not a regular file", self.fails(3, "trace", "info", "."))
        self.assertIn("jsn", self.fails(2, "trace", "info", "t.h5", "--format", "jsn"))


class Check(CommandTest):
    def damaged(self, name, change):
        """A copy of t.h5 after `change` of the open file, without the digests that would notice the change as it is read:
        the checks are those of older traces, and of writers that digested wrong numbers."""
        shutil.copy(self.folder / "t.h5", self.folder / name)
        with h5py.File(self.folder / name, "r+") as file:
            without_digests(file)
            change(file)

    def verdict(self, code, *files):
        done = self.kvsim("trace", "check", *files, "-q")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_sound(self):
        bytes_of_tensors = 3 * (2 + 2 + 4) * 108 * 16 * 4
        self.assertRegex(self.verdict(0, "t.h5"), rf"^t.h5: sound \({bytes_of_tensors} bytes of tensors, content [0-9a-f]{{64}}\)\n$")

    def test_every_file_gets_a_verdict(self):
        (self.folder / "text").write_text("hello")
        done = self.kvsim("trace", "check", "t.h5", "text", "none.h5", "t.h5", "-q")
        self.assertEqual(done.returncode, 3)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split(" (")[0] for line in lines if not line.startswith(" ")],
                         ["t.h5: sound", "text: BAD", "none.h5: BAD", "t.h5: sound"])
        self.assertIn("2 of 4 trace files are bad", done.stderr)

    def test_changed_numbers(self):
        def change(file):
            file["layers/0001/k"][1, 7, 3] += 1
        self.damaged("changed.h5", change)
        page = self.verdict(3, "changed.h5")
        self.assertIn("changed.h5:/layers/0001/k: does not match its sha256", page)
        self.assertIn("content_sha256 does not match", page)

    def test_numbers_that_are_none(self):
        def change(file):
            file["layers/0002/v"][0, 5, 2] = np.nan
            file["layers/0002/v"][1, 0, 0] = np.inf
        self.damaged("nan.h5", change)
        self.assertIn("/layers/0002/v: holds 2 values that are not finite, the first at [0, 5, 2]", self.verdict(3, "nan.h5"))

    def test_changed_tokens(self):
        def change(file):
            file["tokens/id"][50] += 1
        self.damaged("tokens.h5", change)
        self.assertIn("/segments/sha256: does not match the token ids", self.verdict(3, "tokens.h5"))

    def test_flipped_bits_on_disk_fail_the_checksum_and_hide_nothing_else(self):
        data = bytearray((self.folder / "t.h5").read_bytes())
        with h5py.File(self.folder / "t.h5", "r") as file:
            for name in "layers/0000/k", "layers/0002/q":
                dataset = file[name]
                data[dataset.id.get_chunk_info(0).byte_offset + 100] ^= 0x10
        (self.folder / "flipped.h5").write_bytes(data)
        page = self.verdict(3, "flipped.h5")
        for place in "/layers/0000/k", "/layers/0002/q":
            self.assertIn(f"{place}: block 0 of head 0 (rows 0 to 107) is damaged: it does not match its digest", page)

    def test_cut_off(self):
        data = (self.folder / "t.h5").read_bytes()
        (self.folder / "cut.h5").write_bytes(data[: len(data) * 2 // 3])
        page = self.verdict(3, "cut.h5")
        self.assertIn("cut.h5: cannot be opened: truncated file", page)
        self.assertIn("damaged or was cut off", page)


class Export(CommandTest):
    def arrays(self, path):
        """The arrays of a .safetensors file, by its specification."""
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        metadata, types = header.pop("__metadata__"), {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8", "U8": "u1"}
        found, end = {}, 0
        for name, entry in header.items():
            begin, stop = entry["data_offsets"]
            self.assertEqual(begin, end, name)
            end = stop
            found[name] = np.frombuffer(data[8 + length + begin:8 + length + stop], types[entry["dtype"]]).reshape(entry["shape"])
        self.assertEqual(8 + length + end, len(data))
        return found, json.loads(metadata["kvsim"])

    def test_both_formats_hold_what_the_trace_stores(self):
        """More tokens than a block of rows that is written at once, and every stored type."""
        for elem in "f32", "f16", "bf16":
            self.make_trace("e.h5", 4200, 3, "--elem", elem, "--overwrite")
            for end in "safetensors", "npz":
                self.ok("trace", "export", "e.h5", "-o", f"e.{end}", "--overwrite", "--quiet")
            arrays, said = self.arrays(self.folder / "e.safetensors")
            self.assertEqual(said, json.loads(self.ok("trace", "info", "e.h5", "--format", "json")))
            with zipfile.ZipFile(self.folder / "e.npz") as archive:
                self.assertIsNone(archive.testzip())
            with np.load(self.folder / "e.npz") as other, h5py.File(self.folder / "e.h5") as file:
                self.assertEqual(json.loads(bytes(other["description"])), said)
                self.assertEqual(sorted(other.files), sorted([*arrays, "description"]))
                for name, values in arrays.items():
                    self.assertEqual(other[name].dtype, values.dtype)
                    np.testing.assert_array_equal(other[name], values)
                for layer, tensor in ((layer, tensor) for layer in range(3) for tensor in "qkv"):
                    stored, values = file[f"layers/{layer:04d}/{tensor}"][...], arrays[f"layers.{layer}.{tensor}"]
                    if elem == "bf16":
                        values = (values.astype("<u4") << 16).view("<f4")
                    np.testing.assert_array_equal(values, stored)
                np.testing.assert_array_equal(arrays["token_ids"], file["tokens/id"])

    def test_no_file_stays_where_it_fails(self):
        self.assertIn("ends with neither .safetensors nor .npz", self.fails(2, "trace", "export", "t.h5", "-o", "t.pt"))
        shutil.copy(self.folder / "t.h5", self.folder / "bad.h5")
        with h5py.File(self.folder / "bad.h5", "r+") as file:
            file["layers/0002/v"][1, 100, 3] += 1
        self.assertIn("does not match its digest", self.fails(3, "trace", "export", "bad.h5", "-o", "bad.npz", "--quiet"))
        self.assertFalse(list(self.folder.glob("bad.npz*")) + list(self.folder.glob("t.pt*")))


class Join(CommandTest):
    """A captured run, its heads divided among tensor-parallel ranks as kvsim.vllm writes them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "prompt.txt").write_text("The cache of keys and values grows with every token. " * 4)
        for name, tokens, *options in (["run.h5", 8, "--elem", "bf16"], ["other.h5", 9], ["rows.h5", 8, "--attention", "window:4"]):
            made = cls.kvsim("capture", "--model", SOURCE / "traces/sample/model", "--prompt", "prompt.txt", "--max-new-tokens", tokens,
                             "--quiet", "-o", name, *options)
            assert made.returncode == 0, made.stderr

    def divided(self, name, ranks, said=True, more=""):
        """A trace of each rank. More of them than KV heads share these."""
        paths = []
        with h5py.File(self.folder / name) as file:
            def known(kind, place):
                found = {each.name: file[place].attrs.get(each.name) for each in fields(kind)}
                return {key: value.decode() if isinstance(value, bytes) else value.item()
                        for key, value in found.items() if value is not None}

            tokens, model, offset = file["tokens"], known(Model, "model"), file["text/offset"][:]
            text = file["text/bytes"][:].tobytes()
            heads, kv_heads = model["n_q_heads"], model["n_kv_heads"]
            copies = max(1, ranks // kv_heads)
            for rank in range(ranks):
                part = Model(**model | {"n_q_heads": heads // ranks, "n_kv_heads": max(1, kv_heads // ranks)},
                             layer_window=file["model/layer_window"][:], inv_freq=file["model/inv_freq"][:],
                             config_json=file["model/config_json"][:].tobytes())
                capture = Capture(**known(Capture, "capture"))
                capture.rank = f"{rank} of {ranks}" + (f", each KV head on {copies}" if copies > 1 else "") + more if said else ""
                segments = [Segment(*map(int, each)) for each in zip(*(file[f"segments/{key}"] for key in ("count", "parent", "phase")))]
                passes = [Pass(*map(int, each)) for each in zip(*(file[f"passes/{key}"] for key in ("segment", "begin", "q_len")))]
                header = Header(capture, tokens["id"][:], segments, passes, token_flags=tokens["flags"][:],
                                flags_known=tokens.attrs["flags_known"], token_text=[text[a:b] for a, b in zip(offset, offset[1:])])
                paths.append(f"{rank}-of-{ranks}.h5")
                with TraceWriter(self.folder / paths[-1], part, "bf16", overwrite=True) as writer:
                    for layer in range(part.n_layers):
                        for tensor, count, first in (("q", part.n_q_heads, rank * part.n_q_heads),
                                                     *((kind, part.n_kv_heads, rank // copies * part.n_kv_heads) for kind in "kv")):
                            rows = file[f"layers/{layer:04d}/{tensor}"][first:first + count]
                            writer.append(tensor, layer, (rows.view("<u4") >> 16).astype("<u2"))
                    writer.finish(header)
        return paths

    def test_gives_the_run_again(self):
        replay = "--policy", "snapkv,h2o,random", "--budget", "25%", "--per", "head", "--format", "csv", "--quiet"
        rows = lambda name: self.ok("replay", name, *replay).replace(name, "")
        whole = json.loads(self.ok("trace", "info", "run.h5", "--format", "json"))
        for ranks in 2, 4, 8:  # of 4 KV heads
            parts = self.divided("run.h5", ranks)
            self.assertIn(f"1 of {ranks}", self.ok("trace", "info", parts[1]))
            self.assertIn("4 KV heads", self.ok("trace", "join", *parts[::-1], "-o", "joined.h5", "--overwrite"))
            self.ok("trace", "check", "joined.h5", "--quiet")
            page = json.loads(self.ok("trace", "info", "joined.h5", "--format", "json"))
            self.assertEqual((page["content_sha256"], page["capture"]["rank"]), (whole["content_sha256"], None))
            with h5py.File(self.folder / "run.h5") as a, h5py.File(self.folder / "joined.h5") as b:
                for layer, tensor in ((layer, tensor) for layer in a["layers"] for tensor in "qkv"):
                    np.testing.assert_array_equal(a[f"layers/{layer}/{tensor}"], b[f"layers/{layer}/{tensor}"])
            self.assertEqual(rows("joined.h5"), rows("run.h5"))
        unsaid = self.divided("run.h5", 2, said=False)
        self.ok("trace", "join", *unsaid, "-o", "joined.h5", "--overwrite")
        self.assertEqual(json.loads(self.ok("trace", "info", "joined.h5", "--format", "json"))["content_sha256"], whole["content_sha256"])

    def test_refuses_what_is_not_one_run(self):
        parts = self.divided("run.h5", 4)
        for given, what in ((parts[:3], "is one of 4 ranks, and 3 traces are given"), ([*parts[:3], parts[0]], "is rank 0, as "),
                            (["run.h5", "other.h5"], "other.h5: is of another run than run.h5: tokens: "),
                            (["rows.h5", "rows.h5"], "attention rows"),
                            ([parts[0], "run.h5"], "run.h5: is of a run of other ranks than 0-of-4.h5")):
            self.assertIn(what, self.fails(3, "trace", "join", *given, "-o", "no.h5"))
        self.assertIn('says that it is rank "0 of 2 or so"', self.fails(3, "trace", "join", *self.divided("run.h5", 2, more=" or so"), "-o", "no.h5"))
        self.assertIn("nothing to be joined with", self.fails(2, "trace", "join", "run.h5", "-o", "no.h5"))
        self.assertFalse(list(self.folder.glob("no.h5*")))


class Manifest(CommandTest):
    def setUp(self):
        self.set = self.folder / "set"
        shutil.rmtree(self.set, ignore_errors=True)
        self.set.mkdir()
        shutil.copy(self.folder / "t.h5", self.set)
        (self.set / "LICENSE").write_text("CC0")

    def listed(self, *more):
        self.ok("trace", "manifest", "set", "--licence", "CC0-1.0", "--quiet", *more)
        return json.loads((self.set / "manifest.json").read_text())

    def check(self, code):
        done = self.kvsim("trace", "check", "--manifest", "set/manifest.json", "--quiet")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_says_sizes_and_checksums_and_finds_what_differs(self):
        page = self.listed()
        self.assertEqual(page["licence"], "CC0-1.0")
        for file in page["files"]:
            data = (self.set / file["name"]).read_bytes()
            self.assertEqual((file["bytes"], file["sha256"]), (len(data), hashlib.sha256(data).hexdigest()))
        self.assertEqual([file["name"] for file in page["files"]], ["LICENSE", "t.h5"])
        said = self.check(0)
        self.assertIn("set/LICENSE: as listed", said)
        self.assertIn("set/t.h5: sound", said)
        (self.set / "LICENSE").write_text("CC1")
        (self.set / "t.h5").unlink()
        said = self.check(3)
        self.assertIn("set/LICENSE: does not match its sha256", said)
        self.assertIn("set/t.h5: cannot be read: No such file or directory", said)

    def test_parts_are_those_of_split(self):
        part = 100000
        page = self.listed("--part", f"{part // 1000}KB")
        subprocess.run(["split", "-b", str(part), "-d", "-a", "3", "t.h5", "t.h5."], cwd=self.set, check=True)
        whole = (self.set / "t.h5").read_bytes()
        (self.set / "t.h5").unlink()
        parts = page["files"][1]["parts"]
        self.assertEqual([each["name"] for each in parts], sorted(path.name for path in self.set.glob("t.h5.*")))
        said = self.check(0)
        self.assertIn(f"set/t.h5: all {len(parts)} parts are as listed", said)
        (command,) = re.findall("cat .*", said)
        subprocess.run(command, shell=True, cwd=self.folder, check=True)
        self.assertEqual((self.set / "t.h5").read_bytes(), whole)
        self.assertIn("set/t.h5: sound", self.check(0))
        (self.set / "t.h5").unlink()
        (self.set / parts[1]["name"]).write_bytes(whole[:7])
        self.assertIn(f"{parts[1]['name']}: has 7 bytes, not the {parts[1]['bytes']} that are listed", self.check(3))

    def test_refuses_what_is_no_set(self):
        (self.set / "inner").mkdir()
        self.assertIn("set/inner: is no file", self.fails(3, "trace", "manifest", "set", "--licence", "CC0-1.0"))
        (self.set / "inner").rmdir()
        self.assertIn("nothing to check", self.fails(2, "trace", "check"))
        page = self.listed()
        for change, words in (lambda: page["files"][0].update(name="../t.h5"), "is no name of a file in the manifest's folder"), \
                (lambda: page["files"][0].update(sha256="x"), "hexadecimal"), (lambda: page.update(format="x"), "is no manifest"):
            change()
            (self.folder / "m.json").write_text(json.dumps(page))
            self.assertIn(words, self.fails(3, "trace", "check", "--manifest", "m.json"))
            page = json.loads((self.set / "manifest.json").read_text())


class Generate(CommandTest):
    def digest(self, name):
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def test_same_seed_same_bytes(self):
        for name, seed in ("a.h5", 3), ("b.h5", 3), ("c.h5", 4):
            self.ok("trace", "generate", "--prompt-tokens", 50, "--decode", 2, "--seed", seed, "-o", name)
        self.assertEqual(self.digest("a.h5"), self.digest("b.h5"))
        self.assertNotEqual(self.digest("a.h5"), self.digest("c.h5"))

    def test_an_existing_file_stays_unless_told(self):
        before = self.digest("t.h5")
        self.assertIn("--overwrite", self.fails(2, "trace", "generate", "-o", "t.h5"))
        self.assertEqual(self.digest("t.h5"), before)
        self.ok("trace", "generate", "--prompt-tokens", 20, "-o", "again.h5")
        self.ok("trace", "generate", "--prompt-tokens", 30, "-o", "again.h5", "--overwrite")
        self.assertIn("94: 30 prompt", self.ok("trace", "info", "again.h5"))

    def test_leftovers_of_a_killed_run_are_removed(self):
        (self.folder / "left.h5.00c0ffee.partial").write_bytes(b"half")
        (self.folder / "left.h5.mine.partial").write_bytes(b"not kvsim's")
        self.ok("trace", "generate", "--prompt-tokens", 20, "-o", "left.h5")
        self.assertEqual(sorted(path.name for path in self.folder.glob("left*")), ["left.h5", "left.h5.mine.partial"])

    def test_impossible_requests(self):
        for options, text in (("--head-dim 7", "head dimension must be even"), ("--layers 0", "layers must be 1"),
                              ("--prompt-tokens 0", "prompt must be at least 1"), ("--prompt-tokens -1", "--prompt-tokens"),
                              ("--heavy-share 2", "heavy share"), ("--noise nan", "noise"), ("--elem f8", "f8"),
                              ("--prompt-tokens 16000000 --layers 1000", "more than this machine has"),
                              ("--kv-heads 18446744073709551615", "--kv-heads"), ("--stretch 0", "stretch"),
                              ("--needles 18446744073709551615", "--needles"), ("--needles 200", "room for sinks, needles")):
            self.assertIn(text, self.fails(2, "trace", "generate", *options.split(), "-o", "never.h5"), options)
        self.assertFalse((self.folder / "never.h5").exists())
        self.assertEqual(list(self.folder.glob("never.h5*")), [])
        self.assertIn("No such file or directory", self.fails(3, "trace", "generate", "-o", "no/such/dir.h5"))
        self.assertIn("--output is required", self.fails(2, "trace", "generate"))

    def test_needles_are_marked_and_found_by_the_attention_that_asks_for_them(self):
        self.ok("trace", "generate", "--prompt-tokens", 400, "--decode", 6, "--layers", 2, "--needles", 3, "--needle-tokens", 2,
                "--drift", 0, "--stretch", 4, "-o", "needles.h5")
        marked = re.search(r"^marked +(.+)$", self.ok("trace", "info", "needles.h5"), re.MULTILINE)[1]
        self.assertRegex(marked, r"^context 397 tokens \(0:397\); question 3 tokens \(397:400\); evidence 6 tokens \((\d+:\d+, ){2}\d+:\d+\)$")
        for cut in "prompt", "question":
            found, newest, evicted = self.rows("needles.h5", "--cut", cut, "--budget", "10%", "--policy", "full+top_tokens(read=40)",
                                               "--policy", "full+recent_tokens(read=40)", "--policy", "window")
            self.assertLess(found["evidence_loss"], 0.01)
            self.assertEqual(evicted["evidence_loss"], 1)
            self.assertEqual(newest["evidence_loss"], 1)

    def test_element_types(self):
        for elem in "f32", "f16", "bf16":
            self.ok("trace", "generate", "--prompt-tokens", 20, "--elem", elem, "-o", elem + ".h5")
            self.assertIn(f"stored            {elem}: keys", self.ok("trace", "info", elem + ".h5"))
            self.ok("trace", "check", elem + ".h5", "-q")


if __name__ == "__main__":
    kvsim_command.main()
