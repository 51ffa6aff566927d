#!/usr/bin/env python3
"""Tests the output files of a replay, and its failures."""
import os
import re
import signal
import subprocess
import sys

import h5py
import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest, start, wait_until_caught


class Output(CommandTest):
    study = ["replay", "t.h5", "--policy", "h2o", "--budget", "10,20", "--quiet"]

    def leftovers(self):
        return sorted(path.name for path in self.folder.iterdir() if path.name.endswith(".partial"))

    def test_file_holds_what_standard_output_would(self):
        expected = self.ok(*self.study, "--format", "json")
        self.assertEqual(self.ok(*self.study, "--format", "json", "-o", "rows.json"), "")
        self.assertEqual((self.folder / "rows.json").read_text(), expected)
        self.assertEqual(self.ok(*self.study, "--format", "json", "--output", "-"), expected)
        self.assertEqual(self.leftovers(), [])

    def test_existing_file_is_kept_unless_told(self):
        (self.folder / "old.csv").write_text("precious")
        message = self.fails(2, *self.study, "-o", "old.csv")
        self.assertIn("old.csv", message)
        self.assertIn("--overwrite", message)
        self.assertEqual((self.folder / "old.csv").read_text(), "precious")
        self.ok(*self.study, "-o", "old.csv", "--format", "csv", "--overwrite")
        self.assertTrue((self.folder / "old.csv").read_text().startswith("trace,policy"))

    def test_a_link_stays_a_link(self):
        (self.folder / "real.csv").write_text("")
        (self.folder / "link.csv").symlink_to("real.csv")
        self.ok(*self.study, "-o", "link.csv", "--format", "csv", "--overwrite")
        self.assertTrue((self.folder / "link.csv").is_symlink())
        self.assertTrue((self.folder / "real.csv").read_text().startswith("trace,policy"))

    def test_the_trace_is_never_overwritten(self):
        before = (self.folder / "t.h5").read_bytes()
        os.link(self.folder / "t.h5", self.folder / "other_name.h5")
        for option in "-o", "--decisions":
            for name in "t.h5", "./t.h5", "other_name.h5":
                self.assertIn("read by this command", self.fails(2, *self.study, option, name, "--overwrite"))
        self.assertIn("cannot share", self.fails(2, *self.study, "-o", "x.h5", "--decisions", "x.h5"))
        self.assertEqual((self.folder / "t.h5").read_bytes(), before)

    def test_places_that_cannot_be_written(self):
        self.assertIn("No space left", self.fails(3, *self.study, "-o", "/dev/full"))
        self.assertIn("No such file", self.fails(3, *self.study, "-o", "missing/rows.csv"))
        self.assertIn("directory", self.fails(2, *self.study, "-o", "."))
        self.assertEqual(self.leftovers(), [])

    def test_a_failed_replay_leaves_no_file(self):
        self.fails(2, *self.study, "--memory-limit", "1KiB", "-o", "never.csv")
        self.fails(3, "replay", "t.h5", "missing.h5", "--policy", "h2o", "--budget", "10", "-o", "never.csv")
        self.assertFalse((self.folder / "never.csv").exists())
        self.assertEqual(self.leftovers(), [])

    def test_lost_standard_output_is_not_success(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([KVSIM, *self.study], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("standard output", done.stderr)
        closed = subprocess.run(["bash", "-c", '"$0" "$@" >&-', KVSIM, *self.study], cwd=self.folder,
                                stderr=subprocess.PIPE, text=True)
        self.assertEqual(closed.returncode, 3)

    def test_a_reader_that_leaves_ends_it_quietly(self):
        budgets = ",".join(map(str, range(1, 90)))  # far more than a pipe holds
        script = '"$0" replay t.h5 --policy window --policy h2o --policy random --per head --format csv --quiet ' \
                 f'--budget {budgets} | head -1; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(["bash", "-c", script, KVSIM], cwd=self.folder, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("trace,policy"))
        self.assertEqual(lines[1], "0")  # it has seen what it wanted
        self.assertEqual([line for line in done.stderr.splitlines() if "note" not in line], [])

    def test_standard_output_into_a_device_or_pipe(self):
        expected = self.ok(*self.study, "--format", "csv")
        self.assertEqual(self.ok(*self.study, "--format", "csv", "-o", "/dev/stdout"), expected)

    def test_the_documented_reader_of_decisions_works(self):
        self.ok(*self.study[:2], "--policy", "h2o", "--budget", "20", "--decisions", "kept.h5", "--overwrite")
        code = re.search(r"```python\n(.*?)```", (SOURCE / "analysis" / "results" / "METRICS.md").read_text(), re.DOTALL)[1]
        done = subprocess.run([sys.executable, "-c", code + "print(len(held))"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("20\n", ""))

    def test_decisions_agree_with_the_rows(self):
        rows = self.rows("t.h5", "--policy", "h2o", "--policy", "snapkv(window=8)", "--budget", "20", "--per", "head")
        self.ok(*self.study[:2], "--policy", "h2o", "--policy", "snapkv(window=8)", "--budget", "20", "--decisions",
                "kept.h5")
        with h5py.File(self.folder / "kept.h5") as file:
            self.assertEqual(sorted(file["cells"]), ["0000", "0001"])
            for cell in range(2):
                group = file[f"cells/{cell:04d}"]
                ptr, position = group["lane_ptr"][:], group["position"][:]
                first, last = group["first_step"][:], group["last_step"][:]
                self.assertTrue((first < last).all())
                for lane in range(6):
                    span = slice(int(ptr[lane]), int(ptr[lane + 1]))
                    after_prompt = position[span][first[span] == 0]
                    self.assertEqual(len(after_prompt), rows[cell * 6 + lane]["kept_tokens"])
                    self.assertEqual(len(set(after_prompt.tolist())), len(after_prompt))
        self.assertIn("one by one", self.fails(2, "replay", "t.h5", "t.h5", "--policy", "h2o", "--budget", "20",
                                               "--decisions", "two.h5"))
        self.assertIn("--overwrite", self.fails(2, *self.study, "--decisions", "kept.h5"))
        self.ok(*self.study, "--decisions", "kept.h5", "--overwrite")

    def test_interrupted_work_says_so_and_leaves_nothing(self):
        self.make_trace("long.h5", 16000, 200)
        for sign in signal.SIGINT, signal.SIGTERM:
            work = start("replay", "long.h5", "--policy", "all", "--budget", "10%,20%,30%,40%,50%,60%,70%,80%", "--threads",
                         1, "-o", "long.csv", cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(work.kill)
            wait_until_caught(work, sign)
            work.send_signal(sign)
            out, err = work.communicate(timeout=200)
            self.assertEqual((work.returncode, out), (4, ""), err)
            self.assertTrue(err.endswith("kvsim: interrupted\n"), err)
            self.assertFalse((self.folder / "long.csv").exists())
            self.assertEqual(self.leftovers(), [])


if __name__ == "__main__":
    kvsim_command.main()
