#!/usr/bin/env python3
"""Tests several turns and several sequences in one trace: each replays as if it had been captured alone, with its
earlier turns as prompt.

Usage: test_sequences.py KVSIM SOURCE_DIR
"""
import csv
import io
import json
import sys

import numpy as np

from kvsim_command import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tools" / "python"))
from kvsim.writing.trace_file import TraceWriter  # noqa: E402
from kvsim.writing.trace_header import DECODE, FLAGS, PROMPT, ROLES, Capture, Header, Model, Segment  # noqa: E402

# Parent, tokens, phase, turn, role.
TREE = [(-1, 40, PROMPT, 0, "system"), (0, 12, PROMPT, 0, "user"), (1, 6, DECODE, 0, "assistant"),
        (2, 10, PROMPT, 1, "user"), (3, 8, DECODE, 1, "assistant"), (0, 9, PROMPT, 0, "user"), (5, 7, DECODE, 0, "assistant")]
LEAVES = [2, 4, 6]  # leaves of the first turn, of the second, and of another conversation after the same system prompt


def write(path, segments, ids, tensors, leaves=None, positions=None):
    """`tensors`: {(name, layer): [heads, n, dim]}."""
    model = Model(2, 4, 2, 8, 500, rope_theta=10000.0)
    generated = np.repeat([s.phase == DECODE for s in segments], [s.count for s in segments])
    header = Header(Capture("synthetic"), ids, segments, sequence_leaf=leaves, token_position=positions,
                    token_flags=np.where(generated, FLAGS["generated"], 0), flags_known=FLAGS["generated"])
    with TraceWriter(path, model, "f32") as writer:
        for (name, layer), rows in tensors.items():
            writer.append(name, layer, np.ascontiguousarray(rows))
        writer.finish(header)


class Sequences(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        segments = [Segment(count, parent, phase, turn, ROLES[role]) for parent, count, phase, turn, role in TREE]
        total = sum(segment.count for segment in segments)
        draw = np.random.default_rng(1)
        ids = draw.integers(0, 500, total)
        tensors = {(name, layer): draw.normal(size=(4 if name == "q" else 2, total, 8)).astype("f4")
                   for layer in range(2) for name in "qkv"}
        write(cls.folder / "tree.h5", segments, ids, tensors, LEAVES)
        begins = np.concatenate([[0], np.cumsum([segment.count for segment in segments])])
        for index, leaf in enumerate(LEAVES):
            path = [leaf]
            while segments[path[0]].parent >= 0:
                path.insert(0, segments[path[0]].parent)
            tokens = np.concatenate([np.arange(begins[s], begins[s + 1]) for s in path])
            decode = segments[leaf].count
            write(cls.folder / f"alone-{index}.h5", [Segment(len(tokens) - decode), Segment(decode, 0, DECODE)], ids[tokens],
                  {key: rows[:, tokens] for key, rows in tensors.items()})

    def results(self, *arguments):
        rows = json.loads(self.ok(*arguments, "--format", "json", "--quiet"))["results"]
        names = [row.pop("trace") for row in rows]
        return rows, list(dict.fromkeys(names))

    def test_each_is_replayed_as_if_alone(self):
        policies = ["--policy", "h2o", "--policy", "snapkv(window=4)", "--policy", "streamingllm", "--budget", "25%,16", "--per", "head"]
        alone = [self.results("replay", f"alone-{i}.h5", *policies)[0] for i in range(3)]
        for i in range(3):
            self.assertEqual(self.results("replay", "tree.h5", *policies, "--sequence", i), (alone[i], [f"tree.h5#{i}"]))
        self.assertEqual(self.results("replay", "tree.h5", *policies, "--sequence", "all"),
                         (sum(alone, []), ["tree.h5#0", "tree.h5#1", "tree.h5#2"]))
        self.assertEqual(self.results("analyze", "persistence", "tree.h5", "--sequence", "2")[0],
                         self.results("analyze", "persistence", "alone-2.h5")[0])
        shares = [json.loads(self.ok("allocate", name, "--policy", "h2o+pyramid", "--budget", "16", "--quiet", *more))["shares"]
                  for name, *more in (["tree.h5", "--sequence", "1"], ["alone-1.h5"])]
        self.assertEqual(*shares)

    def test_what_is_told(self):
        replay = ["replay", "tree.h5", "--policy", "h2o", "--budget", "25%", "--quiet"]
        done = self.kvsim(*replay)
        self.assertIn("tree.h5 holds 3 sequences; the first is taken (--sequence N|all)", done.stderr)
        self.assertIn("tree.h5#0", done.stdout)
        done = self.kvsim(*replay, "--sequence", "1")
        self.assertIn("tree.h5#1: 6 generated tokens of earlier turns are part of the prompt", done.stderr)
        for wrong in ("3", "-1", "one"):
            self.assertIn("holds sequences 0 to 2", self.fails(2, *replay, f"--sequence={wrong}"))
        self.assertIn("--sequence N", self.fails(2, *replay, "--sequence", "all", "--decisions", "d.h5"))
        self.ok(*replay, "--sequence", "1", "--decisions", "d.h5")
        self.assertIn("one sequence", self.fails(2, "cost", "estimate", "--trace", "tree.h5", "--machine", "t4", "--model", "llama-3-8b",
                                                 "--sequence", "all"))

    def test_info_shows_the_tree(self):
        page = [line.split() for line in self.ok("trace", "info", "tree.h5").splitlines()]
        for line in (["0", "-", "prompt", "0", "system", "40", "0"], ["3", "2", "prompt", "1", "user", "10", "58"],
                     ["4", "3", "decode", "1", "assistant", "8", "68", "1"],
                     ["6", "5", "decode", "0", "assistant", "7", "49", "2"]):
            self.assertIn(line, page)
        self.assertNotIn("assistant", self.ok("trace", "info", "alone-0.h5"))
        page = json.loads(self.ok("trace", "info", "tree.h5", "--format", "json"))
        self.assertEqual(page["sequence_leaf"], LEAVES)
        self.assertEqual(page["segments"][5], {"parent": 0, "phase": "prompt", "turn": 0, "role": "user", "begin": 76, "tokens": 9,
                                               "tokens_before": 40})

    def test_positions_with_gaps_are_not_replayed(self):
        ids, zero = np.zeros(6, int), np.zeros((2, 6, 8), "f4")
        tensors = {(name, layer): np.concatenate([zero, zero]) if name == "q" else zero for layer in range(2) for name in "qkv"}
        write(self.folder / "gap.h5", [Segment(4), Segment(2, 0, DECODE)], ids, tensors, positions=[0, 1, 2, 3, 5, 6])
        self.ok("trace", "check", "gap.h5", "-q")
        self.assertIn("/tokens/position[4]: is 5, but the token is number 4",
                      self.fails(3, "replay", "gap.h5", "--policy", "h2o", "--budget", "2", "--quiet"))


    def test_a_running_model_answers_every_turn_of_a_tree(self):
        # The tree is of another model; its tokens are of this one's vocabulary too, and nothing else is read.
        def answers(*arguments):
            return list(csv.DictReader(io.StringIO(self.ok(
                "evaluate", "--model", SOURCE / "traces" / "sample" / "model", "--policy", "full", "--policy", "h2o", "--budget", "50%",
                "--mode", "teacher", "--max-new-tokens", 8, "--format", "csv", "--quiet", *arguments))))
        tree = answers("--trace", "tree.h5", "--sequence", "all")
        self.assertEqual([row["item"] for row in tree if row["policy"] == "full"],
                         ["tree.h5#0", "tree.h5#1/0", "tree.h5#1/1", "tree.h5#2"])
        self.assertEqual([int(row["tokens"]) for row in tree if row["policy"] == "full"], [6, 6, 8, 7])
        self.assertEqual({row["kl"] for row in tree if row["policy"] == "full"}, {"0"})
        for index, item in (0, "tree.h5#0"), (1, "tree.h5#1/1"), (2, "tree.h5#2"):
            alone = answers("--trace", f"alone-{index}.h5")
            mine = [dict(row) for row in tree if row["item"] == item]
            for a, b in zip(mine, alone, strict=True):
                for key in "item", "turn":
                    a.pop(key), b.pop(key)
                self.assertEqual(a, b)
        golden = answers("--trace", "tree.h5", "--sequence", "1", "--turns", "golden")
        self.assertEqual([(row["turn"], row["policy"], row["tokens"]) for row in golden],
                         [("0", "full", "6"), ("0", "h2o", "6"), ("1", "full", "8"), ("1", "h2o", "8")])
        first = [row for row in tree if row["item"] == "tree.h5#1/0"]
        self.assertEqual([row["kl"] for row in golden[:2]], [row["kl"] for row in first])
        for arguments, said in ((["--trace", "tree.h5", "--sequence", "3"], "sequence"), (["--sequence", "1", "--prompt", "p"], "--trace"),
                                (["--trace", "tree.h5", "--answer", " x"], "--answer")):
            done = self.kvsim("evaluate", "--model", SOURCE / "traces" / "sample" / "model", "--policy", "full", "--budget", "50%", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    sys.exit(main())
