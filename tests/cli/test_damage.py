#!/usr/bin/env python3
"""Tests that every command that reads a trace notices that it is damaged, or that it changes while it is read."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import time

import h5py
import kvsim_command
import numpy as np
from kvsim_command import SOURCE, CommandTest, start, without_digests

GOLDEN = SOURCE / "tests" / "golden" / "traces"
REPLAY = ["--policy", "h2o", "--budget", "25%", "--format", "json", "--quiet"]
PER_TENSOR = 40


def chunk_places(path, tensor):
    """(layer, head, first row, offset in the file, bytes) of every chunk. Found by what it holds: libhdf5 1.10 gives wrong
    addresses for datasets that grow along their second axis."""
    data, places = path.read_bytes(), []
    with h5py.File(path) as file:
        for layer, group in file["layers"].items():
            dataset = group[tensor]
            heads, rows, _ = dataset.shape
            step = dataset.chunks[1]
            for head in range(heads):
                for row in range(0, rows, step):
                    begin = data.index(dataset[head, row:row + step].tobytes())
                    places.append((layer, head, row, begin, dataset[0, :step].nbytes + 4))  # and the checksum
    return places


class ZeroedChunks(CommandTest):
    """A chunk of zeros has a Fletcher32 of zero, so that libhdf5 takes it for sound."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.kvsim("trace", "generate", "--layers", 10, "--kv-heads", 2, "--head-dim", 64, "--prompt-tokens", 1010, "--decode", 12,
                         "-o", "sound.h5")
        assert made.returncode == 0, made.stderr
        cls.sound = (cls.folder / "sound.h5").read_bytes()

    def zeroed(self, offset, size):
        data = bytearray(self.sound)
        data[offset:offset + size] = bytes(size)
        (self.folder / "zeroed.h5").write_bytes(data)

    def test_replay_refuses_each_of_120(self):
        for tensor in "k", "v", "q":
            places = chunk_places(self.folder / "sound.h5", tensor)
            self.assertGreaterEqual(len(places), PER_TENSOR)
            for layer, head, row, offset, size in random.Random(1).sample(places, PER_TENSOR):
                self.zeroed(offset, size)
                message = self.fails(3, "replay", "zeroed.h5", "--policy", "h2o", "--budget", 64, "--quiet")
                self.assertIn(f"zeroed.h5:/layers/{layer}/{tensor}: block {row // 512} of head {head} (rows {row} to ", message)

    def test_a_study_leaves_each_of_120_out_and_is_not_complete(self):
        self.ok("trace", "generate", "--layers", 20, "--kv-heads", 2, "--head-dim", 16, "--prompt-tokens", 60, "--decode", 4, "-o", "small.h5")
        sound, expected = (self.folder / "small.h5").read_bytes(), {}
        (self.folder / "many").mkdir()
        for tensor in "k", "v", "q":
            for layer, head, _, offset, size in chunk_places(self.folder / "small.h5", tensor)[:PER_TENSOR]:
                name = f"{tensor}{layer}-{head}"
                expected[name] = f"many/{name}.h5:/layers/{layer}/{tensor}: block 0 of head {head} (rows 0 to 63) is damaged"
                (self.folder / f"many/{name}.h5").write_bytes(sound[:offset] + bytes(size) + sound[offset + size:])
        self.assertEqual(len(expected), 3 * PER_TENSOR)
        (self.folder / "s.json").write_text(json.dumps(
            {"traces": ["many/*.h5", "t.h5"], "policies": ["h2o"], "budgets": ["25%"], "report": False}))
        done = self.kvsim("study", "s.json", "-o", "d", "--quiet")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("120 of 121 traces could not be read", done.stderr)
        result = json.loads((self.folder / "d/study.json").read_text())["result"]
        self.assertFalse(result["complete"])
        for trace in result["traces"]:
            self.assertIn(expected[trace["name"]] if trace["name"] != "t" else "", trace.get("problem", ""))
        rows = (self.folder / "d/results.csv").read_text().splitlines()[1:]
        self.assertEqual({row.split(",")[0] for row in rows}, {"t"})

    def test_every_command_that_reads_tensors_refuses(self):
        *_, offset, size = chunk_places(self.folder / "sound.h5", "k")[0]
        self.zeroed(offset, size)
        for command in (["analyze", "hash", "zeroed.h5"], ["diff", "sound.h5", "zeroed.h5"],
                        ["allocate", "zeroed.h5", "--policy", "snapkv+adakv", "--budget", 64]):
            done = self.kvsim(*command)
            self.assertEqual((done.returncode, done.stdout), (3, ""), (command, done.stderr))
            self.assertIn("does not match its digest", done.stderr)
        self.assertIn("does not match its digest", self.kvsim("trace", "check", "zeroed.h5", "-q").stdout)


class Older(CommandTest):
    def test_a_trace_of_schema_1_3_gives_the_numbers_of_the_same_trace_now(self):
        """The golden file was written by the kvsim before digests, with these arguments."""
        shutil.copy(GOLDEN / "schema_1_3.h5", self.folder / "old.h5")
        self.ok("trace", "generate", "--layers", 2, "--kv-heads", 2, "--group", 2, "--head-dim", 8, "--prompt-tokens", 40, "--decode", 4,
                "--elem", "bf16", "-o", "new.h5")
        with h5py.File(self.folder / "old.h5") as file:
            self.assertEqual((file.attrs["schema_minor"], "xxh3" in file["layers/0000"]), (3, False))
        old, new = (json.loads(self.ok("replay", name, *REPLAY))["results"] for name in ("old.h5", "new.h5"))
        self.assertEqual([row | {"trace": ""} for row in old], [row | {"trace": ""} for row in new])
        self.assertIn("sound", self.ok("trace", "check", "old.h5", "-q"))
        self.assertIn("No differences", self.ok("diff", "old.h5", "new.h5", "--tolerance", 0))
        shutil.copy(self.folder / "new.h5", self.folder / "stripped.h5")
        with h5py.File(self.folder / "stripped.h5", "r+") as file, h5py.File(self.folder / "old.h5") as before:
            without_digests(file)
            self.assertEqual(file.attrs["content_sha256"], before.attrs["content_sha256"])

    def test_windows_that_contradict_each_other(self):
        shutil.copy(self.folder / "t.h5", self.folder / "windows.h5")
        with h5py.File(self.folder / "windows.h5", "r+") as file:
            file["layers/0001"].attrs.modify("window", np.int32(7))
        self.assertIn("windows.h5:/layers/0001/: attribute window is 7, /model/layer_window[1] is -1",
                      self.fails(3, "replay", "windows.h5", *REPLAY))


class UnderAReader(CommandTest):
    """A replay is stopped as soon as it has opened its trace, the trace is changed, and the replay goes on."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, seed in ("sound.h5", 1), ("other.h5", 2):
            made = cls.kvsim("trace", "generate", "--layers", 8, "--kv-heads", 2, "--head-dim", 64, "--prompt-tokens", 1500, "--decode", 12,
                             "--seed", seed, "-o", name)
            assert made.returncode == 0, made.stderr

    def change(self, kind, draw):
        path = self.folder / "read.h5"
        if kind == "rename":
            shutil.copy(self.folder / "other.h5", self.folder / "new.h5")
            os.replace(self.folder / "new.h5", path)
        elif kind == "rewrite":  # in place: the same inode and length
            path.write_bytes((self.folder / "other.h5").read_bytes())
        elif kind == "rewrite the same":
            path.write_bytes((self.folder / "sound.h5").read_bytes())
        else:
            os.truncate(path, draw.randrange(path.stat().st_size))

    def stopped_while_reading(self, work, share):
        """Stops the process once it has read more than `share` of the trace. False: it has read nine tenths, so that it may
        be past the end of its reading, or has ended."""
        size = (self.folder / "read.h5").stat().st_size
        while work.poll() is None:
            work.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, work.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            try:
                links = [os.readlink(f"/proc/{work.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{work.pid}/fd")]
                read = int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{work.pid}/io").read_text())[1])
            except (FileNotFoundError, PermissionError):
                break
            if read > 0.9 * size:
                break
            if str(self.folder / "read.h5") in links and read > share * size:
                return True
            work.send_signal(signal.SIGCONT)
            time.sleep(0.001)
        return False

    def test_a_study_keeps_nothing_of_a_trace_that_changed(self):
        """Nor does it go on from it: the trace is left out, and run when the study goes on."""
        shutil.copy(self.folder / "sound.h5", self.folder / "read.h5")
        (self.folder / "s.json").write_text(json.dumps({"traces": ["read.h5", "t.h5"], "policies": ["h2o"], "report": False,
                                                        "budgets": ["5%", "10%", "15%", "20%", "25%", "30%"]}))
        for _ in range(50):
            work = start("study", "s.json", "-o", "d", "--overwrite", "--quiet", cwd=self.folder, stdout=-1, stderr=-1)
            if self.stopped_while_reading(work, 0.1):
                break
            work.kill()
            work.communicate()
        self.assertIsNone(work.poll(), "the study is too short for this test")
        self.change("rewrite the same", None)
        work.send_signal(signal.SIGCONT)
        _, message = work.communicate(timeout=100)
        self.assertEqual(work.returncode, 3, message)
        self.assertIn("read.h5: was rewritten, cut off, replaced or removed while it was read", message)
        self.assertEqual([path.name for path in (self.folder / "d/tasks").iterdir()], ["t.cut-prompt.seed-0"])
        self.assertFalse(json.loads((self.folder / "d/study.json").read_text())["result"]["complete"])
        self.ok("study", "s.json", "-o", "d", "--resume", "--quiet")
        self.ok("study", "s.json", "-o", "fresh", "--quiet")
        self.assertEqual((self.folder / "d/results.csv").read_text(), (self.folder / "fresh/results.csv").read_text())

    def test_40_changes_end_with_3(self):
        draw, missed = random.Random(7), 0
        kinds = ["rename", "rewrite", "rewrite the same", "truncate"] * 10
        while kinds:
            shutil.copy(self.folder / "sound.h5", self.folder / "read.h5")
            work = start("replay", "read.h5", "--policy", "h2o", "--budget", "5%,10%,15%,20%,25%,30%", "--quiet", cwd=self.folder,
                         stdout=-1, stderr=-1)
            if not self.stopped_while_reading(work, draw.random() * 0.7):
                work.kill()
                work.communicate()
                missed += 1
                self.assertLess(missed, 200, "the replay is too short for this test")
                continue
            kind = kinds.pop()
            self.change(kind, draw)
            work.send_signal(signal.SIGCONT)
            out, message = work.communicate(timeout=100)
            self.assertEqual((work.returncode, out), (3, ""), (kind, message))
            self.assertIn("read.h5", message)


if __name__ == "__main__":
    kvsim_command.main()
