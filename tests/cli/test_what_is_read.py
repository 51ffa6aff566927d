#!/usr/bin/env python3
"""Tests what is read (analysis/CHOOSING_A_POLICY.md): its commands run, its tables are what they give, and its findings follow from them."""
import csv
import re
import statistics

import kvsim_command
from kvsim_command import SOURCE, CommandTest
from test_readme_commands import run_each

EXAMPLES = SOURCE / "analysis" / "examples"
COMMANDS = (EXAMPLES / "what_is_read.sh").read_text().replace("\\\n", "").splitlines()
TABLES = "what_is_read", "what_is_read_apart", "what_is_read_layers", "what_is_read_calibrated"


def policies_of(output):
    """Of the command that writes a file, as they are typed."""
    command, = (command for command in COMMANDS if f" -o {output}" in command)
    return [quoted or plain for quoted, plain in re.findall(r"--policy (?:'([^']+)'|(\S+))", command)]


def read_csv(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def percent(share):
    return f"{100 * share:.1f} %"


class Cells:
    """Rows of a replay by trace, cut and short name; what is read as a share of what the full cache reads."""

    def __init__(self, path, full):
        self.rows, self.full, names = {}, full, {}
        for row in read_csv(path):
            name = names.setdefault(row["params"], row["params"].removeprefix("full()+uniform()+"))
            self.rows[row["trace"].removesuffix(".h5"), row["cut"], name] = row
        self.names = list(names.values())

    def named(self, short):
        """The cells in the order of these names."""
        assert len(short) == len(self.names), (short, self.names)
        self.rows = {(trace, cut, short[self.names.index(name)]): row for (trace, cut, name), row in self.rows.items()}
        self.names = short
        return self

    def mean(self, key, name, traces, cut):
        of_full = key in ("read_bytes", "index_read_bytes", "index_bytes")
        return statistics.fmean(float(self.rows[trace, cut, name][key] or 0) / (self.full[trace] if of_full else 1) for trace in traces)


KEYS, NEEDLES = ("keys0", "keys1"), ("needles",)


def without_full(policies):
    return [policy.removeprefix("full+") for policy in policies]


class Runs:
    """What the commands leave in a folder, as cells and as the lines of each table."""

    def __init__(self, folder):
        def study(name):
            rows = read_csv(folder / name / "results.csv")
            full = {row["trace"]: float(row["read_bytes"]) for row in rows if row["policy"] == "full"}
            typed = re.findall(r'"(full[^"]*)"', (EXAMPLES / f"{name}.json").read_text())
            return Cells(folder / name / "results.csv", full).named(without_full(typed))

        def replay(name):
            return Cells(folder / name, self.read.full).named(without_full(policies_of(name)))

        self.read, self.apart = study("what_is_read"), study("queries_apart")
        self.asked, self.layers, self.moved = replay("asked.csv"), replay("layers.csv"), replay("moved.csv")

    def tables(self):
        read, apart, layers, moved = [], [], [], []
        for name in self.read.names[1:]:
            cells = [percent(self.read.mean("index_bytes", name, KEYS, "question"))]
            for traces in KEYS, NEEDLES:
                cells += [percent(self.read.mean("read_bytes", name, traces, "question"))]
                cells += [f"{self.read.mean(key, name, traces, 'question'):.2f}" for key in ("read_recall", "evidence_loss")]
            read.append([name, *cells])
        for name in self.apart.names[1:]:
            cells = []
            for trace in "near", "apart", "keys0":
                cells += [percent(self.apart.mean("read_bytes", name, [trace], "prompt")),
                          f"{self.apart.mean('read_recall', name, [trace], 'prompt'):.2f}"]
            apart.append([name, *cells])
        for name in self.layers.names:
            layers.append([name, percent(self.layers.mean("read_bytes", name, KEYS, "question")),
                           *(f"{self.layers.mean(key, name, KEYS, 'question'):.2f}"
                             for key in ("read_recall", "attention_loss", "evidence_loss"))])
        for name in self.moved.names:
            moved.append([name, percent(self.moved.mean("read_bytes", name, KEYS[:1], "question")),
                          *(f"{self.moved.mean(key, name, KEYS[:1], 'question'):.2f}"
                            for key in ("read_recall", "attention_loss", "evidence_loss"))])
        return read, apart, layers, moved


class WhatIsRead(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run_each(["bash analysis/examples/what_is_read.sh"], cls.folder, timeout=800)
        cls.runs = Runs(cls.folder)

    def test_the_tables_are_what_the_commands_give(self):
        self.maxDiff = None
        for name, found in zip(TABLES, self.runs.tables(), strict=True):
            with open(EXAMPLES / f"{name}.csv") as file:
                _, *lines = csv.reader(file)
            self.assertEqual(lines, found, name)

    def test_findings(self):
        def sample(key, name):
            return self.runs.read.mean(key, name, KEYS, "question")

        def needles(key, name):
            return self.runs.read.mean(key, name, NEEDLES, "question")

        rocket, pq, recent = "rocketkv(read=4%)", "pqcache(read=4%)", "recent_tokens(read=4%)"
        retrieval, a2ats = "retrieval(read=4%,sinks=4,recent=32,queries=500)", "a2ats(read=4%,centres=128,rounds=10)"
        sparq, few, many = "sparq(read=4%,channels=16)", "double_sparsity(read=4%,dense=0)", "double_sparsity(read=4%,group_factor=4,dense=0)"
        methods = [name for name in self.runs.read.names[1:] if "read=4%" in name and not name.startswith(("top_", "recent_", "random_"))]
        # Little evidence is lost for few bytes by these two alone, and least of all by sparq and a2ats.
        self.assertEqual({name for name in methods if sample("read_bytes", name) < 0.1 and sample("evidence_loss", name) < 0.1}, {rocket, pq})
        self.assertEqual(set(sorted(methods, key=lambda name: sample("evidence_loss", name))[:2]), {sparq, a2ats})
        # Recall does not say what is found.
        self.assertEqual(max(methods, key=lambda name: sample("read_recall", name)), retrieval)
        self.assertGreater(sample("evidence_loss", retrieval), 0.4)
        self.assertLess(sample("read_recall", rocket), sample("read_recall", recent))
        self.assertGreater(sample("evidence_loss", recent), 0.99)
        # Codes find what keys have in common; pages and components find needles that are like nothing else.
        for name in pq, a2ats:
            self.assertGreater(needles("evidence_loss", name), 10 * sample("evidence_loss", name))
        for name in sparq, "quest(read=4%,page=4,dense=0)":
            self.assertLess(needles("evidence_loss", name), 0.01)
        self.assertGreater(needles("evidence_loss", rocket), 0.8)
        self.assertLess(needles("evidence_loss", "rocketkv(read=16%)"), 0.01)
        # Channels that count on average.
        self.assertGreater(needles("evidence_loss", few), 0.9)
        self.assertGreater(needles("evidence_loss", many), 0.9)
        self.assertLess(sample("evidence_loss", many), 0.5 * sample("evidence_loss", few))
        for name in "triforce(read=4%)", "rekv(read=4%,block=16,question=4)":
            self.assertGreater(sample("evidence_loss", name), 0.9)

    def test_findings_about_queries_unlike_keys(self):
        def recall(name, trace):
            found, = (full for full in self.runs.apart.names if full.startswith(name))
            return self.runs.apart.mean("read_recall", found, [trace], "prompt")

        for same in "retrieval(read=100,index=flat", "retrieval(read=100,index=query_graph,beam=100", "quest", "double_sparsity":
            self.assertEqual(recall(same, "near"), recall(same, "apart"), same)
        self.assertAlmostEqual(recall("a2ats", "near"), recall("a2ats", "apart"), places=2)
        for lower in "retrieval(read=100,index=graph,beam=100", "retrieval(read=100,index=ivf,lists=256,probes=10%":
            self.assertAlmostEqual(recall(lower, "near"), recall("retrieval(read=100,index=flat", "near"), places=2)
            self.assertLess(recall(lower, "apart"), 0.7 * recall(lower, "near"))
        for little in "sparq", "pqcache":
            self.assertLess(recall(little, "apart"), recall(little, "near"))
            self.assertGreater(recall(little, "apart"), 0.9 * recall(little, "near"))
        self.assertGreater(recall("retrieval(read=100,index=graph,beam=100", "keys0"), recall("retrieval(read=100,index=query_graph,beam=100", "keys0"))
        asked, = self.runs.asked.names
        self.assertEqual([round(self.runs.asked.mean("evidence_loss", asked, NEEDLES, cut), 2) for cut in ("prompt", "question")], [0, 0.84])

    def test_findings_about_layers_and_calibrations(self):
        def tidal(key, first, second):
            return self.runs.layers.mean(key, f"tidal(read=16%,dense={first},correction={second})", KEYS, "question")

        self.assertGreater(tidal("attention_loss", 0, 0), tidal("attention_loss", 0, 2))
        self.assertGreater(tidal("attention_loss", 0, 2), tidal("attention_loss", 0, 3))
        self.assertGreater(tidal("attention_loss", 1, 0), tidal("attention_loss", 1, 2))
        self.assertGreater(tidal("attention_loss", 1, 2), tidal("attention_loss", 1, 3))
        for first in 0, 1:
            self.assertLess(tidal("evidence_loss", first, 3), 0.02)
            for second in 0, 2:
                self.assertGreater(tidal("evidence_loss", first, second), 0.7)

        def moved(key, codec):
            return [self.runs.moved.mean(key, name, KEYS[:1], "question") for name in self.runs.moved.names if name.startswith(codec)]

        prompt, text, same_kind, own = moved("read_recall", "double_sparsity")
        self.assertLess(max(abs(recall - prompt) for recall in (text, same_kind, own)), 0.01)
        prompt, text, same_kind, own = moved("evidence_loss", "a2ats")
        self.assertGreater(same_kind, 1.5 * own)
        self.assertGreater(text, 3 * own)
        self.assertGreater(own, 5 * prompt)
        by_prompt, *_, by_own = moved("read_recall", "a2ats")
        self.assertAlmostEqual(by_prompt, by_own, places=2)


if __name__ == "__main__":
    kvsim_command.main()
