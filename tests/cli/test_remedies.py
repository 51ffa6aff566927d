#!/usr/bin/env python3
"""Tests that what a message tells the reader to do works: each command here is refused, the words of its message become the next
command, and that one succeeds."""
import json
import re
import shlex
import shutil

import kvsim_command
from kvsim_command import SOURCE, CommandTest

MODEL = SOURCE / "traces/sample/model"


class Remedies(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "text.txt").write_text("The river runs past the old mill. " * 40)
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(40)))
        cls.make_trace("long.h5", 300, 8)
        for command in (["capture", "--model", MODEL, "--tokens", "ids.txt", "--max-new-tokens", 2, "--quiet", "-o", "run.h5"],
                        ["replay", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "-o", "rows.csv"],
                        ["workload", "needle", "--context", 120, "--count", 2, "--tokenizer", MODEL, "-o", "items.jsonl"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    def follow(self, command, pattern, remedied, code=2):
        """`remedied`: the words of the next command, from those of the message that `pattern` finds."""
        with self.subTest(" ".join(map(str, command))):
            said = self.fails(code, *command)
            found = re.search(pattern, said)
            self.assertIsNotNone(found, said)
            self.ok(*remedied(found))

    def test_options(self):
        replay = ["replay", "t.h5", "--budget", 20, "--quiet"]
        h2o = [*replay, "--policy", "h2o"]
        item = ["capture", "--model", MODEL, "--workload", "items.jsonl", "--max-new-tokens", 1, "--quiet", "-o", "item.h5"]
        first = json.loads((self.folder / "items.jsonl").read_text().splitlines()[0])["id"]
        weighed = ["capture", "--model", MODEL, "--tokens", "ids.txt", "--max-new-tokens", 2, "--quiet", "-o", "weighed.h5"]
        evaluate = ["evaluate", "--model", MODEL, "--policy", "window", "--budget", 64, "--quiet"]
        for command, pattern, remedied in (
                ([*h2o, "-o", "rows.csv"], r"say (--overwrite)", lambda m: [*h2o, "-o", "rows.csv", m[1]]),
                ([*replay, "--policy", "h2p"], r"Did you mean (\w+)", lambda m: [*replay, "--policy", m[1]]),
                ([*replay, "--policy", "h2o(recnt=0.3)"], r"Did you mean (\w+)", lambda m: [*replay, "--policy", f"h2o({m[1]}=0.3)"]),
                ([*replay, "--polcy", "h2o"], r"Did you mean (--\w+)", lambda m: [*replay, m[1], "h2o"]),
                ([*replay, "--policy", "h2o+minicache"], r"Write (\S+)\.", lambda m: [*replay, "--policy", m[1]]),
                ([*h2o, "--format", "h5"], r"Name a file: (-o \S+)", lambda m: [*h2o, "--format", "h5", *m[1].split()]),
                (["replay", "t.h5", "--budget", 40, "--policy", "critical_kv", "--quiet"], r"Capture again with (--output-weights)",
                 lambda m: (self.ok(*weighed, m[1]),
                            ["replay", "weighed.h5", "--budget", 40, "--policy", "critical_kv", "--quiet"])[1]),
                (["replay", "t.h5", "--policy", "full+kvquant(file=none.h5)", "--budget", 20, "--quiet"], r"none\.h5",
                 lambda m: (self.ok("calibrate", "kvquant", "long.h5", "-o", m[0], "--quiet"),
                            ["replay", "t.h5", "--policy", "full+kvquant(file=none.h5)", "--budget", 20, "--quiet"])[1]),
                ([*evaluate, "--prompt", "text.txt", "--max-new-tokens", 4000], r"At most (\d+) fit",
                 lambda m: ["capture", "--model", MODEL, "--prompt", "text.txt", "--max-new-tokens", min(int(m[1]), 3), "--quiet",
                            "-o", "fits.h5"]),
                (item, r"--item|such as", lambda m: [*item, "--item", first]),
                (["export", "s1", "--format", "csv"], r"with (--table)", lambda m: ["export", "s1", "--format", "csv", m[1], "means"]),
                (["report", "s1"], r"say (--overwrite)", lambda m: ["report", "s1", m[1]]),
                (["trace", "run.h5"], r"such as kvsim (trace [^.]*run\.h5)", lambda m: shlex.split(m[1])),
                (["policy", "h2o"], r"such as kvsim (policy .*h2o)", lambda m: shlex.split(m[1])),
        ):
            if command[0] in ("export", "report") and not (self.folder / "s1").exists():
                (self.folder / "s.json").write_text('{"traces": ["t.h5"], "policies": ["h2o"], "budgets": [20]}')
                self.ok("study", "s.json", "-o", "s1", "--quiet")
            code = 3 if "none.h5" in str(command) else 2
            self.follow(command, pattern, remedied, code)

    def test_studies(self):
        (self.folder / "s.json").write_text('{"traces": ["t.h5", "long.h5"], "policies": ["h2o"], "budgets": [20], "report": false}')
        study = ["study", "s.json", "-o", "s2", "--quiet"]
        shutil.copy(self.folder / "long.h5", self.folder / "kept.h5")
        with open(self.folder / "long.h5", "r+b") as file:
            file.truncate(3000)
        said = self.kvsim(*study).stderr
        go_on = re.search(r"Go on with: kvsim (study .*--resume)", said)
        self.assertIsNotNone(go_on, said)
        shutil.copy(self.folder / "kept.h5", self.folder / "long.h5")
        self.ok(*shlex.split(go_on[1]), "--quiet")
        self.follow(study, r"(--resume) goes on", lambda m: [*study, m[1]])
        self.follow(study, r"(--overwrite) starts anew", lambda m: [*study, m[1]])
        self.follow(study, r"(-o) chooses another", lambda m: ["study", "s.json", m[1], "s3", "--quiet"])

    def test_policy_pages_show_commands_that_run(self):
        policies = json.loads(self.ok("policy", "list", "--format", "json"))
        for policy in policies:
            if policy["kind"] not in ("representation", "selection"):
                continue
            for line in self.ok("policy", "show", policy["name"]).splitlines():
                if not line.strip().startswith("kvsim replay") or "FILE" in line:
                    continue
                with self.subTest(line.strip()):
                    words = shlex.split(line.replace("run.h5", "shown.h5").replace("10%,25%,50%", "50%"))
                    if not (self.folder / "shown.h5").exists():
                        self.ok("trace", "generate", "--layers", 4, "--kv-heads", 2, "--head-dim", 64, "--prompt-tokens", 200,
                                "--decode", 4, "-o", "shown.h5")
                    self.ok(*words[1:], "--quiet")


if __name__ == "__main__":
    kvsim_command.main()
