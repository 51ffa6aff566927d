#!/usr/bin/env python3
"""Injected faults: every command on a small input, over and over, each time with another allocation or another system call that
fails. No command crashes, gives a verdict about its input for a fault of the machine, or leaves anything half-written; one that
succeeds all the same says what it says otherwise."""
import os
import pathlib
import re
import shutil
import unittest

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

LIBRARY = pathlib.Path(KVSIM).parent / "tests/libkvsim_faults.so"
MODEL = SOURCE / "traces/sample/model"
REQUESTS = SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz"
POINTS = 14  # of each kind for each command
MACHINE = ("--model", "llama-3.1-8b", "--machine", "h100-sxm")


def timeless(text):
    return re.sub(r"[\d.e-]+ s \([\d.e+]+ tokens/s\)", "TIME", text)


@unittest.skipUnless(LIBRARY.exists(), "no library that injects faults")
class Faults(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(40)))
        (cls.folder / "text.txt").write_text("The river runs past the mill.")
        (cls.folder / "s.json").write_text('{"traces": ["t.h5"], "policies": ["h2o"], "budgets": [20], "report": false}')
        for command in (["replay", "t.h5", "--policy", "h2o,window", "--budget", 20, "--quiet", "--format", "csv", "-o", "rows.csv"],
                        ["calibrate", "kvquant", "t.h5", "-o", "tables.h5", "--quiet"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    # {} is the output.
    COMMANDS = {
        "replay": ["replay", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "--threads", 2, "--decisions", "{}.h5"],
        "replay h5": ["replay", "t.h5", "--policy", "full+kvquant(file=tables.h5,own_traces=allowed)", "--budget", 20, "--quiet",
                      "--format", "h5", "-o", "{}.h5"],
        "view": ["view", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "--threads", 2, "-o", "{}.html"],
        "generate": ["trace", "generate", "--layers", 1, "--kv-heads", 1, "--head-dim", 8, "--prompt-tokens", 60, "-o", "{}.h5"],
        "check": ["trace", "check", "t.h5"],
        "info": ["trace", "info", "t.h5"],
        "mark": ["trace", "mark", "t.h5", "--evidence", "3:9", "-o", "{}.h5"],
        "capture": ["capture", "--model", MODEL, "--tokens", "ids.txt", "--max-new-tokens", 1, "--quiet", "-o", "{}.h5"],
        "workload": ["workload", "needle", "--context", 60, "--count", 1, "--tokenizer", MODEL, "-o", "{}.jsonl"],
        "evaluate": ["evaluate", "--model", MODEL, "--prompt", "text.txt", "--policy", "window", "--budget", 8, "--max-new-tokens", 1,
                     "--format", "csv", "--quiet", "-o", "{}.csv"],
        "calibrate": ["calibrate", "kvquant", "t.h5", "-o", "{}.h5", "--quiet"],
        "analyze": ["analyze", "heads", "t.h5", "--format", "csv", "--quiet", "-o", "{}.csv"],
        "plot": ["plot", "quality", "rows.csv", "-o", "{}.svg"],
        "export": ["export", "rows.csv", "-o", "{}.h5"],
        "diff": ["diff", "t.h5", "t.h5"],
        "study": ["study", "s.json", "-o", "{}", "--quiet"],
        "cost": ["cost", "estimate", *MACHINE, "--policy", "h2o", "--prompt-tokens", "8K", "--budget", 512, "-o", "{}.csv"],
        "requests info": ["requests", "info", REQUESTS, "--limit", 20, "--quiet", "-o", "{}.csv"],
        "requests serve": ["requests", "serve", REQUESTS, "--limit", 10, *MACHINE, "--quiet", "-o", "{}.csv"],
        "policy": ["policy", "show", "h2o"],
    }

    def run_with(self, command, output, **environment):
        words = [str(word).replace("{}", output) for word in command]
        return self.kvsim(*words, env={**os.environ, "LD_PRELOAD": str(LIBRARY), **environment})

    def made(self, output):
        return {path.name.replace(output, "{}"): None if path.is_dir() else path.read_bytes() for path in self.folder.glob(f"{output}*")}

    def forget(self, output):
        for path in self.folder.glob(f"{output}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def look_at(self, done, output, whole, said):
        """One run with a fault."""
        self.assertIn(done.returncode, (0, 3, 6), done.stderr)
        self.assertNotIn("bug in kvsim", done.stderr)
        if "read request failed" not in done.stdout:  # a disk that cannot be read is a finding about the file
            self.assertNotRegex(done.stdout + done.stderr, r"trace files is bad|[Dd]amaged|does not match")
        self.assertEqual([str(path) for path in self.folder.rglob("*.*.partial") if path.is_file()], [])
        if done.returncode == 0:
            self.assertEqual(timeless(done.stdout.replace(output, "{}")), timeless(said))
            self.assertEqual(self.made(output).keys(), whole.keys())
        for name, content in self.made(output).items():
            if content is not None and not name.endswith(".h5"):  # a trace says when it was made
                self.assertEqual(content, whole[name])

    def test_each_command(self):
        for name, command in self.COMMANDS.items():
            output = "out"
            first = self.run_with(command, output, KVSIM_FAULT_COUNT="count")
            self.assertEqual(first.returncode, 0, first.stderr)
            whole, said = self.made(output), first.stdout.replace(output, "{}")
            counts = map(int, (self.folder / "count").read_text().split())
            for kind, count in zip(("allocation", "call"), counts):
                # Evenly, by the golden ratio, with another offset for each command; the first ones are of the start.
                points = {1 + int(count * ((i + 1) * 0.618034 % 1)) for i in range(POINTS)}
                for n in sorted(points):
                    self.forget(output)
                    with self.subTest(f"{name}: {kind} {n} of {count}"):
                        done = self.run_with(command, output, KVSIM_FAULT=f"{kind}:{n}")
                        self.look_at(done, output, whole, said)
            self.forget(output)

    def test_little_memory_is_no_damage(self):
        import resource
        verdicts = set()
        for limit in range(40, 400, 12):  # MB of addresses
            bytes_ = limit << 20, limit << 20
            done = self.kvsim("trace", "check", "t.h5", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, bytes_))
            if done.returncode == 127:
                continue  # the program itself does not fit
            self.assertIn(done.returncode, (0, 6), f"{limit} MB: {done.stdout}{done.stderr}")
            verdicts.add(done.returncode)
        self.assertIn(6, verdicts)


if __name__ == "__main__":
    kvsim_command.main()
