#!/usr/bin/env python3
"""Tests tools/python/both_loops.py, which writes analysis/OPEN_AND_CLOSED.md: a small run of it on the shipped model, and that
the page of the project is of this script."""
import csv
import json
import re
import statistics
import subprocess
import sys

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

SCRIPT = SOURCE / "tools" / "python" / "both_loops.py"
PAGE = SOURCE / "analysis" / "OPEN_AND_CLOSED.md"
COUNT = 2


def tau_b(pairs):
    """Kendall's tau-b by its definition, of (replay, answers), better first on both sides."""
    concordant = discordant = in_open = in_closed = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            concordant += (a - c) * (b - d) > 0
            discordant += (a - c) * (b - d) < 0
            in_open += a != c
            in_closed += b != d
    return (concordant - discordant) / (in_open * in_closed) ** 0.5 if in_open and in_closed else None


def headings(text):
    return re.findall(r"^#.*", text, re.MULTILINE)


def claims(text):
    """The first column of the table of claims."""
    return re.findall(r"^\| (.+?) \|", text.split("## Claims")[1].split("\n## ")[0], re.MULTILINE)


class BothLoops(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = cls.folder / "runs"
        cls.write("page.md")

    @classmethod
    def write(cls, page, *more):
        done = subprocess.run([sys.executable, SCRIPT, KVSIM, "--models", "sample", "--runs", cls.runs, "--page", cls.folder / page,
                               "--count", str(COUNT), *more], capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return (cls.folder / page).read_text() if (cls.folder / page).exists() else None

    def rows(self):
        """{(kind, cut, budget, policy): rows of all prompts} of what the script keeps."""
        found = {}
        for path in self.runs.glob("sample-*.jsonl"):
            if not path.name.endswith(".prompts.jsonl"):
                for line in map(json.loads, path.read_text().splitlines()):
                    for row in line["rows"]:
                        found.setdefault((path.stem, row["cut"], row["budget"], row["policy"]), []).append(row)
        return {cell: rows for cell, rows in found.items() if rows[0]["right"] is not None}

    def test_orders_are_those_of_the_rows(self):
        rows, checked = self.rows(), 0
        kinds = {"eight keys": "sample-eight-keys", "one key": "sample-one-key", "variables": "sample-variables"}
        with open(self.runs / "sample-tau.csv", newline="") as file:
            for told in csv.DictReader(file):
                key, sign = told["measure"], 1 if told["measure"] in ("r", "evidence_held") else -1
                cells = [of for (kind, cut, budget, _), of in rows.items()
                         if (kind, cut, budget) == (kinds[told["kind"]], told["cut"], told["budget"])]
                self.assertTrue(all(len(of) == COUNT for of in cells))
                self.assertEqual(int(told["policies"]), len(cells))
                if any(row[key] is None for of in cells for row in of):
                    continue
                tau = tau_b([(sign * statistics.fmean(row[key] for row in of), statistics.fmean(row["right"] for row in of))
                             for of in cells])
                if tau is not None:
                    self.assertAlmostEqual(float(told["tau"]), tau, delta=0.000051, msg=told)
                    self.assertLessEqual(float(told["tau_low"]), float(told["tau_high"]))
                    checked += 1
        self.assertGreater(checked, 60)

    def test_answers_of_the_page_are_those_of_the_rows(self):
        shown = re.findall(r"^\| `(\S+)` \| (.+) \|$", (self.folder / "page.md").read_text().split("## Right answers")[1], re.MULTILINE)
        self.assertGreater(len(shown), 15)
        cells = [(cut, budget) for cut in ("prompt", "question") for budget in ("10%", "25%", "50%")]
        right = {}
        for (_, *cell, policy), rows in self.rows().items():
            right[policy, *cell] = right.get((policy, *cell), 0) + sum(row["right"] for row in rows)
        for policy, line in shown:
            self.assertEqual(line.split(" | "), [f"{right[policy, *cell]:.0f}" if (policy, *cell) in right else "-" for cell in cells])

    def test_a_run_goes_on_where_it_was_stopped_and_runs_anew_what_is_asked(self):
        before = {path: path.read_text() for path in self.runs.glob("*.jsonl")}
        self.assertEqual(self.write("again.md"), (self.folder / "page.md").read_text())
        self.assertEqual({path: path.read_text() for path in self.runs.glob("*.jsonl")}, before)
        path = self.runs / "sample-one-key.jsonl"
        first = path.read_text().splitlines(keepends=True)[0]
        path.write_text(first)  # the second prompt is missing
        self.write("after.md", "--redo", "tova")
        after, first_page = (re.sub(r"[\d.]+\s+processor\s+minutes[^)]*", "", (self.folder / name).read_text()).split()
                             for name in ("after.md", "page.md"))
        self.assertEqual(after, first_page)
        rows = [json.loads(line)["rows"] for line in path.read_text().splitlines()]
        of_first, redone, of_second = ({row["policy"] for row in of} for of in rows)
        self.assertEqual(redone, {"tova"})
        self.assertEqual(of_first, of_second - {"tova"})

    def test_the_page_of_the_project_is_of_this_script(self):
        small, page = (self.folder / "page.md").read_text(), PAGE.read_text()
        self.assertEqual([each.replace("SmolLM2", "shipped model") for each in headings(page)], headings(small))
        self.assertEqual(claims(page), claims(small))

    def test_choosing_a_policy_has_the_best_of_the_page(self):
        columns = dict(re.findall(r"^\| `(\S+)` \| (.+) \|$", PAGE.read_text().split("## Right answers")[1], re.MULTILINE))
        choosing = (PAGE.parent / "CHOOSING_A_POLICY.md").read_text()
        told = re.search(r"both_loops.py: the best of each case -->\n(.+?)<!-- end", choosing, re.DOTALL)[1]
        best = re.findall(r"^\| (?:not )?known, \d+% \| `(\S+)` (\d+) .*?then `(\S+)` (\d+)", told, re.MULTILINE)
        self.assertEqual(len(best), 6)
        for place, (policy, right, following, following_right) in enumerate(best):
            right_of = {each: cells.split(" | ")[place] for each, cells in columns.items()}
            self.assertEqual((right_of[policy], right_of[following]), (right, following_right))
            self.assertEqual([right, following_right], sorted((of for of in right_of.values() if of != "-"), key=int)[:-3:-1])

    def test_a_number_of_the_page_is_what_a_run_gives(self):
        """Of the shipped model, where it is cheap."""
        model, answered = SOURCE / "traces" / "sample" / "model", 0
        counts = re.findall(r"(\d+)\s+of\s+(?:eight|one|variables)", PAGE.read_text().split("**shipped model**")[1].split("\n\n")[0])
        for kind, count in zip(("needle-multi-key --facts 8", "needle", "variables"), counts, strict=True):
            self.ok("workload", *kind.split(), "--context", 1000, "--count", count, "--tokenizer", model, "-o", "prompts.jsonl",
                    "--overwrite")
            told = self.ok("evaluate", "--model", model, "--workload", "prompts.jsonl", "--policy", "keydiff", "--budget", "10%",
                           "--cut", "question", "--mode", "greedy", "--format", "csv", "--quiet")
            answered += sum(float(row["right"]) for row in csv.DictReader(told.splitlines()))
        claim = next(line for line in PAGE.read_text().splitlines() if line.startswith("| `keydiff` answers most at 10 %"))
        self.assertEqual(int(re.search(r"`keydiff` (\d+)", claim.split(" | ")[2])[1]), answered)


if __name__ == "__main__":
    kvsim_command.main()
