#!/usr/bin/env python3
"""Tests folders in which a study was stopped: by signals and kills at any moment, or by a full disk. Each can be used
again, whenever that was, and ends with what one run makes."""
import resource
import shutil
import signal
import time

import kvsim_command
from kvsim_command import CommandTest

TIMES = 16


class StoppedStudies(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("small.h5", 96, 12)
        (cls.folder / "s.json").write_text(
            '{"traces": ["small.h5"], "policies": ["h2o", "snapkv", "window"], "budgets": [20, 40], "seeds": [1, 2],'
            ' "statistics": {"resamples": 200}}')
        made = cls.kvsim(*cls.study("whole"))
        assert made.returncode == 0, made.stderr

    def content(self, folder):
        return {str(path.relative_to(self.folder / folder)): path.read_bytes()
                for path in (self.folder / folder).rglob("*") if path.is_file()}

    @staticmethod
    def study(folder, *how):
        return ["study", "s.json", "-o", folder, "--quiet", *how]

    def complete(self, folder):
        study = self.folder / folder / "study.json"
        return study.exists() and '"complete": true' in study.read_text()

    def seconds(self):
        begin = time.monotonic()
        self.ok(*self.study("timed"))
        shutil.rmtree(self.folder / "timed")
        return time.monotonic() - begin

    def test_kills(self):
        """40 kills of runs that resume, start anew, or are the first; none of them costs the folder."""
        whole, seconds = self.content("whole"), self.seconds()
        for i in range(40):
            folder = f"killed{i % 4}"
            how = ["--resume", "--overwrite", "--resume", "--resume"][i % 4]
            if i >= 20 and i % 4 == 1:
                (self.folder / folder / "mine.txt").write_text("not the study's")
            code, said = self.stop_after(self.study(folder, how), seconds * (i * 7 % 40) / 40, signal.SIGKILL)
            self.assertIn(code, (0, -signal.SIGKILL), said)
            if self.complete(folder):
                self.assertTrue((self.folder / folder / "report.html").exists())
        for i in range(4):
            folder = f"killed{i}"
            self.ok(*self.study(folder, "--overwrite" if i == 3 else "--resume"))
            found = self.content(folder)
            found.pop("mine.txt", None)
            self.assertEqual(found, whole)

    def test_interruptions_say_how_to_go_on(self):
        whole, codes = self.content("whole"), []
        for code, said in self.stop_at_any_moment(self.study("stopped", "--overwrite"), self.seconds(), TIMES,
                                                  signal.SIGINT, signal.SIGTERM):
            codes.append(code)
            self.assertIn(code, (0, 4), said)
            if code == 4:
                self.assertIn("kvsim: interrupted", said)
            self.assertEqual(list((self.folder / "stopped").rglob("*.*.partial")) if (self.folder / "stopped").exists() else [],
                             [])
            if self.complete("stopped"):
                self.assertTrue((self.folder / "stopped/report.html").exists())
        self.assertGreaterEqual(codes.count(4), TIMES // 2)
        self.ok(*self.study("stopped", "--resume"))
        self.assertEqual(self.content("stopped"), whole)

    def test_a_full_disk_at_any_stage(self):
        """From the first file, study.json, to the largest, which is of the report."""
        whole = self.content("whole")
        sizes = sorted({len(text) for text in whole.values()})
        stages = set()
        for i, limit in enumerate([1, 100, *(size - 1 for size in sizes[::3]), sizes[-1] - 1]):
            for how in "--resume", "--overwrite":
                folder = f"full{i}{how}"
                done = self.kvsim(*self.study(folder), preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_FSIZE, (limit, limit)))
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, "File too large")
                self.assertFalse(self.complete(folder))
                stages.add((self.folder / folder / "study.json").exists())
                self.ok(*self.study(folder, how))
                self.assertEqual(self.content(folder), whole)
                shutil.rmtree(self.folder / folder)
        self.assertEqual(stages, {True, False})


if __name__ == "__main__":
    kvsim_command.main()
