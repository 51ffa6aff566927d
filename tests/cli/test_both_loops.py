#!/usr/bin/env python3
"""Tests tools/python/both_loops.py, which writes analysis/OPEN_AND_CLOSED.md: a small run of it, and that the page is of this script."""
import csv
import re
import statistics
import subprocess
import sys

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

SCRIPT = SOURCE / "tools" / "python" / "both_loops.py"
PAGE = SOURCE / "analysis" / "OPEN_AND_CLOSED.md"
KIND, BUDGETS, COUNT = "needle-multi-key", ["20%", "50%"], 2
MEAN = statistics.fmean


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


def prose(text):
    """The lines that hold no number, verdict or table: they do not depend on the run."""
    lines = [line for line in text.splitlines() if line and not re.search(r"[\d|]|reproduce", line)]
    return [line for line in lines if not line.startswith(("**Here**", "answers ", "- **"))]


class BothLoops(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = cls.folder / "runs"
        cls.write(cls.folder / "page.md")

    @classmethod
    def write(cls, page):
        done = subprocess.run([sys.executable, SCRIPT, KVSIM, "--runs", cls.runs, "--page", page, "--count", str(COUNT), "--kinds", KIND,
                               "--budgets", ",".join(BUDGETS), "--threads", "1"], capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr

    def means(self, loop, key, cut, budget):
        values = {}
        with open(self.runs / f"{loop}-{KIND}-all.csv", newline="") as file:
            for row in csv.DictReader(file):
                if (row["cut"], row["budget"]) == (cut, budget) and row[key] != "" and row.get("role", "policy") == "policy":
                    values.setdefault(row["params"], []).append(float(row[key]))
        return {params: MEAN(each) for params, each in values.items() if len(each) == COUNT}

    def test_orders_are_those_of_the_rows(self):
        page = (self.folder / "page.md").read_text()
        section = page.split("## Orders of policies")[1].split("\n## ")[0]
        known = section.split("Cut `question`:")
        self.assertEqual(len(known), 3)
        checked = 0
        for cut, text in zip(("prompt", "question"), known):
            for label, key, sign in (("peak loss", "peak_loss", -1), ("attention loss", "attention_loss", -1), ("R_avg", "r", 1)):
                row = re.search(rf"^\| {KIND}, {label} \|(.*)\|$", text, re.MULTILINE)[1].split("|")
                self.assertEqual(len(row), len(BUDGETS))
                for budget, cell in zip(BUDGETS, row):
                    loss, right = self.means("open", key, cut, budget), self.means("closed", "right", cut, budget)
                    shared = loss.keys() & right.keys()
                    self.assertGreater(len(shared), 20)
                    tau = tau_b([(sign * loss[each], right[each]) for each in shared])
                    if tau is None:
                        self.assertEqual(cell.strip(), "-")
                        continue
                    self.assertAlmostEqual(float(cell.split()[0]), tau, delta=0.00501)
                    checked += 1
        self.assertGreater(checked, 6)

    def test_a_finished_run_is_not_run_again_and_writes_the_same_page(self):
        before = {path: path.stat().st_mtime_ns for path in self.runs.glob("*.csv")}
        self.write(self.folder / "again.md")
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.runs.glob("*.csv")}, before)
        self.assertEqual((self.folder / "again.md").read_bytes(), (self.folder / "page.md").read_bytes())
        self.assertEqual(list(self.runs.glob("*.h5")), [])

    def test_the_page_of_the_project_is_of_this_script(self):
        small, page = (self.folder / "page.md").read_text(), PAGE.read_text()
        self.assertEqual(headings(page), headings(small))
        self.assertEqual(prose(page), prose(small))
        for name in re.findall(r"\((open_and_closed_\w+\.svg)\)", page):
            self.assertTrue((PAGE.parent / name).exists(), name)
            self.assertTrue((self.folder / name).exists(), name)


if __name__ == "__main__":
    kvsim_command.main()
