#!/usr/bin/env python3
"""Tests kvsim trace: the output of info, check and generate."""
import hashlib
import json
import re
import shutil

import h5py
import numpy as np

import kvsim_command
from kvsim_command import CommandTest, without_digests


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
