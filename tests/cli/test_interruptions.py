#!/usr/bin/env python3
"""Tests what is left of commands that are stopped at any moment. SIGINT and SIGTERM end every command with exit code 4 and
leave nothing half-written. SIGKILL leaves partial files that no command takes for results and that the next one removes.
Studies: test_stopped_studies.py."""
import os
import pathlib
import signal
import subprocess
import time

import kvsim_command
from kvsim_command import SOURCE, CommandTest, handles_signals, start

MODEL = SOURCE / "traces/sample/model"
TIMES = 16


class Interruptions(CommandTest):
    prompt, decode = 3000, 20
    # What a command writes is called out*; `report` draws into the folder of the study, too.
    COMMANDS = {
        "replay": ["replay", "t.h5", "--policy", "h2o", "--policy", "snapkv", "--budget", "10%,20%,30%", "-o", "out.csv"],
        "replay h5": ["replay", "t.h5", "--policy", "h2o", "--budget", "10%", "--per", "head", "--format", "h5", "-o", "out.h5",
                      "--decisions", "out.decisions.h5"],
        "view": ["view", "t.h5", "--policy", "h2o,snapkv", "--budget", "10%,20%,30%", "-o", "out.html"],
        "trace generate": ["trace", "generate", "--prompt-tokens", 6000, "-o", "out.h5"],
        "trace check": ["trace", "check", "t.h5", "t.h5", "t.h5"],
        "trace info": ["trace", "info", "t.h5"],
        "trace mark": ["trace", "mark", "t.h5", "--evidence", "3:9", "-o", "out.h5"],
        "capture": ["capture", "--model", MODEL, "--prompt", SOURCE / "traces/sample/prompts/copy-1000.txt",
                    "--max-new-tokens", 20, "--ignore-eos", "-o", "out.h5"],
        "workload": ["workload", "needle", "--context", 500, "--count", 50, "--tokenizer", MODEL, "-o", "out.jsonl"],
        "evaluate": ["evaluate", "--model", MODEL, "--prompt", SOURCE / "traces/sample/prompts/copy-0500.txt", "--policy",
                     "window", "--policy", "snapkv", "--budget", 64, "--max-new-tokens", 9, "-o", "out.txt"],
        "calibrate": ["calibrate", "kvquant", "t.h5", "-o", "out.h5"],
        "allocate": ["allocate", "t.h5", "--policy", "h2o+pyramid", "--budget", 20, "-o", "out.json"],
        "analyze": ["analyze", "heads", "t.h5", "--format", "csv", "-o", "out.csv"],
        "plot": ["plot", "quality", "rows.csv", "-o", "out.svg"],
        "report": ["report", "study", "-o", "out.html"],
        "diff": ["diff", "t.h5", "t.h5", "-o", "out.txt"],
        "agreement": ["agreement", "open.csv", "closed.csv", "--resamples", 100000, "-o", "out.txt"],
        "export": ["export", "study", "--format", "h5", "-o", "out.h5"],
        "cost": ["cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--policy", "h2o", "--prompt-tokens", "8K", "--budget",
                 "5%,10%,15%,20%,25%,30%", "-o", "out.txt", "--plot", "out.svg"],
        "requests generate": ["requests", "generate", "--requests", 20000, "-o", "out.jsonl"],
        "requests batch": ["requests", "batch", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--model", "llama-3.1-8b",
                           "--machine", "h100-sxm", "--limit", 3000, "-o", "out.csv"],
        "requests serve": ["requests", "serve", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--model", "llama-3.1-8b",
                           "--machine", "h100-sxm", "--limit", 3000, "--rate", "1,2,3,4", "-o", "out.csv"],
        "requests info": ["requests", "info", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "-o", "out.csv"],
        "requests replay": ["requests", "replay", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", 3000, "--policy", "all",
                            "--capacity", "1M..64M:x2", "-o", "out.csv"],
        "requests compression": ["requests", "compression", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--model",
                                 "llama-3.1-8b", "--machine", "h100-sxm", "--limit", 1000, "--rate", "0.5,1", "--policy", "full+kivi",
                                 "-o", "out.csv"],
        "requests tiers": ["requests", "tiers", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--model", "llama-3.1-8b",
                           "--machine", "h100-sxm", "--limit", 3000, "--host", "64GiB..2TiB:x2", "--policy", "lru,gdsf", "-o", "out.csv"],
        "cost break-even": ["cost", "break-even", "--model", "llama-3.1-8b", "--machine", "h100-sxm", "-o", "out.csv"],
        "policy": ["policy", "list"],
        "config": ["config", "reference"],
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("small.h5", 96, 12)
        os.link(cls.folder / "small.h5", cls.folder / "needle-200-s1-0.h5")
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(300)))
        (cls.folder / "study.json").write_text('{"traces": ["small.h5"], "policies": ["h2o", "snapkv"], "budgets": [20, 40]}')
        for command in (["workload", "needle", "--context", 200, "--count", 1, "--tokenizer", MODEL, "-o", "items.jsonl"],
                        ["replay", "needle-200-s1-0.h5", "--policy", "window", "--budget", 64, "--format", "csv", "-o", "open.csv"],
                        ["evaluate", "--model", MODEL, "--workload", "items.jsonl", "--policy", "window", "--budget", 64,
                         "--max-new-tokens", 1, "--format", "csv", "-o", "closed.csv"],
                        ["replay", "small.h5", "--policy", "h2o", "--budget", "20,40", "--format", "csv", "-o", "rows.csv"],
                        ["study", "study.json", "-o", "study"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    def setUp(self):
        self.clear()

    def outputs(self):
        return sorted(path.name for path in self.folder.glob("out*"))

    def partials(self):
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*.partial")]

    def clear(self):
        for name in self.outputs():
            (self.folder / name).unlink()

    def duration(self, command):
        """Seconds from the moment at which a command handles signals to its end."""
        work = start(*command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begin = handles_signals(work)
        self.assertIn(work.wait(timeout=100), (0, 5))
        return time.monotonic() - begin

    def test_every_command_ends_with_4_and_leaves_nothing_half_written(self):
        for kind, command in self.COMMANDS.items():
            with self.subTest(kind):
                durations, codes = [], []
                for _ in range(2):  # the first may be slower
                    self.clear()
                    durations.append(self.duration(command))
                seconds = min(durations)
                made = {name: (self.folder / name).stat().st_size for name in self.outputs()}
                self.clear()
                for code, said in self.stop_at_any_moment(command, seconds, TIMES, signal.SIGINT, signal.SIGTERM):
                    codes.append(code)
                    self.assertEqual(self.partials(), [])
                    for name in self.outputs():  # whole, or not there
                        self.assertAlmostEqual((self.folder / name).stat().st_size, made[name], delta=0.1 * made[name])
                    if code in (0, 5):  # it was done before the signal
                        self.assertEqual(self.outputs(), sorted(made))
                    else:
                        self.assertEqual((code, said.splitlines()[-1]), (4, "kvsim: interrupted"))
                    self.clear()
                if seconds > 0.1:  # else it may be over before a signal arrives
                    self.assertGreaterEqual(codes.count(4), TIMES // 2, codes)

    def test_waits_end_at_the_first_signal(self):
        """For standard input, and for pipes that nobody writes."""
        os.mkfifo(self.folder / "pipe")
        policy = ["--policy", "window", "--budget", 10]
        for command in (["capture", "--model", MODEL, "--prompt", "-", "-o", "out.h5"],
                        ["capture", "--model", MODEL, "--prompt", "pipe", "-o", "out.h5"],
                        ["capture", "--model", MODEL, "--tokens", "pipe", "-o", "out.h5"],
                        ["capture", "--model", MODEL, "--workload", "pipe", "--item", "a", "-o", "out.h5"],
                        ["evaluate", "--model", MODEL, "--prompt", "-", *policy, "-o", "out"],
                        ["evaluate", "--model", MODEL, "--workload", "pipe", *policy, "-o", "out"],
                        ["workload", "text", "--text", "pipe", "--context", 100, "--tokenizer", MODEL, "-o", "out"],
                        ["plot", "quality", "pipe", "-o", "out.svg"], ["export", "pipe", "-o", "out"],
                        ["diff", "pipe", "rows.csv", "-o", "out"], ["agreement", "pipe", "rows.csv", "-o", "out"],
                        ["cost", "estimate", "--model", "pipe", "--machine", "a100-80-sxm", "--policy", "h2o", "--prompt-tokens", "8K"],
                        ["cost", "allocators", "pipe", "--model", "opt-13b", "--machine", "a100-40-sxm", "-o", "out"],
                        ["study", "pipe", "-o", "out"]):
            for sign in signal.SIGINT, signal.SIGTERM:
                with self.subTest(command, sign=sign):
                    work = start(*command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
                    self.addCleanup(work.kill)
                    handles_signals(work)
                    while not self.waits(work):
                        self.assertIsNone(work.poll(), "it waits for nothing")
                        time.sleep(0.001)
                    work.send_signal(sign)
                    self.assertEqual(work.wait(timeout=20), 4)
                    self.assertTrue(work.communicate()[1].endswith("kvsim: interrupted\n"))
                    self.assertEqual(self.outputs(), [])

    @staticmethod
    def waits(work):
        """Whether its main thread sleeps in read() or open()."""
        try:
            return pathlib.Path(f"/proc/{work.pid}/wchan").read_text() in ("pipe_read", "wait_for_partner", "anon_pipe_read")
        except FileNotFoundError:
            return False

    def test_traces_are_no_pipes(self):
        os.mkfifo(self.folder / "pipe.h5")
        for command in (["trace", "check", "pipe.h5"], ["trace", "info", "pipe.h5"], ["trace", "mark", "pipe.h5", "--evidence", 3, "-o", "out"],
                        ["replay", "pipe.h5", "--policy", "h2o", "--budget", 20], ["analyze", "heads", "pipe.h5"]):
            done = self.kvsim(*command)
            self.assertEqual(done.returncode, 3)
            self.assertIn("not a regular file", done.stdout + done.stderr)

    def test_a_pipe_is_read_once(self):
        """Its second reading would wait for a writer that has gone."""
        os.mkfifo(self.folder / "rows.pipe")
        rows = (self.folder / "rows.csv").read_bytes()
        for command in (["plot", "quality", "rows.pipe", "--format", "csv"], ["export", "rows.pipe", "--format", "json"],
                        ["diff", "rows.pipe", "rows.csv"]):
            with self.subTest(command):
                work = start(*command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(work.kill)
                (self.folder / "rows.pipe").write_bytes(rows)
                _, said = work.communicate(timeout=30)
                self.assertEqual(work.returncode, 0, said)

    def test_a_second_signal_does_not_wait(self):
        code, said = self.stop_after(self.COMMANDS["replay"], 0.01, signal.SIGINT)
        self.assertEqual(code, 4, said)
        work = start("replay", "t.h5", "--policy", "all", "--budget", "10%,30%,50%,70%", "--threads", 1, "-o", "out.csv",
                     cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        handles_signals(work)
        while work.poll() is None and not self.partials():
            time.sleep(0.001)
        work.send_signal(signal.SIGTERM)
        work.send_signal(signal.SIGINT)
        work.communicate(timeout=20)
        self.assertEqual(work.returncode, 4)
        self.assertEqual(self.outputs(), [])

    def test_killed_captures_never_look_finished(self):
        command = ["capture", "--model", MODEL, "--tokens", "ids.txt", "--max-new-tokens", 8, "--ignore-eos", "-o", "out.h5"]
        seconds, left = self.duration(command), 0
        self.clear()
        for code, _ in self.stop_at_any_moment(command, seconds, 100, signal.SIGKILL):
            for name in self.outputs():
                if name.endswith(".partial"):
                    left += 1
                    self.assertIn("is not finished", self.fails(3, "replay", name, "--policy", "h2o", "--budget", 20))
                else:
                    self.assertIn("sound", self.ok("trace", "check", name))
                    self.assertIn(code, (0, -signal.SIGKILL))
            self.assertLessEqual(len(self.partials()), 1)  # each run removes what the one before left
            if (self.folder / "out.h5").exists():
                (self.folder / "out.h5").unlink()
        self.assertGreater(left, 10)
        self.duration(command)
        self.assertEqual(self.outputs(), ["out.h5"])
        self.clear()


if __name__ == "__main__":
    kvsim_command.main()
