#!/usr/bin/env python3
"""Tests tools/python/both_loops.py, which writes tables of analysis/TRUST.md and CHOOSING_A_POLICY.md: a small run of it on the
shipped model, and that the tables of the project are of this script."""
import csv
import json
import re
import shutil
import statistics
import subprocess
import sys

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

SCRIPT = SOURCE / "tools" / "python" / "both_loops.py"
TRUST, CHOOSING = (SOURCE / "analysis" / name for name in ("TRUST.md", "CHOOSING_A_POLICY.md"))
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


def block(page, name):
    """What the script wrote into a page."""
    return re.search(rf"<!-- tools/python/both_loops.py: {name} -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)[1]


def right_answers(folder, name="both_loops.csv"):
    """{policy: right answers of each case}; {claim: what is said of it}."""
    with open(folder / "examples" / name, newline="") as file:
        return {first: cells for first, *cells in list(csv.reader(file))[1:]}


class BothLoops(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = cls.folder / "runs"
        cls.write("pages")

    @classmethod
    def write(cls, pages, *more):
        """The texts of the pages in a folder of that name."""
        folder = cls.folder / pages
        folder.mkdir()
        for page in TRUST, CHOOSING:
            shutil.copy(page, folder)
        done = subprocess.run([sys.executable, SCRIPT, KVSIM, "--models", "sample", "--runs", cls.runs, "--pages", folder,
                               "--count", str(COUNT), *more], capture_output=True, text=True, timeout=3600)  # against hanging
        assert done.returncode == 0, done.stderr
        return [(folder / page.name).read_text() for page in (TRUST, CHOOSING)]

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
        shown = right_answers(self.folder / "pages")
        self.assertGreater(len(shown), 15)
        cells = [(cut, budget) for cut in ("prompt", "question") for budget in ("10%", "25%", "50%")]
        right = {}
        for (_, *cell, policy), rows in self.rows().items():
            right[policy, *cell] = right.get((policy, *cell), 0) + sum(row["right"] for row in rows)
        for policy, line in shown.items():
            self.assertEqual(line, [f"{right[policy, *cell]:.0f}" if (policy, *cell) in right else "-" for cell in cells])

    def test_a_run_goes_on_where_it_was_stopped_and_runs_anew_what_is_asked(self):
        before = {path: path.read_text() for path in self.runs.glob("*.jsonl")}
        first_pages = [(self.folder / "pages" / page.name).read_text() for page in (TRUST, CHOOSING)]
        self.assertEqual(self.write("again"), first_pages)
        self.assertEqual({path: path.read_text() for path in self.runs.glob("*.jsonl")}, before)
        path = self.runs / "sample-one-key.jsonl"
        first = path.read_text().splitlines(keepends=True)[0]
        path.write_text(first)  # the second prompt is missing
        without_times = lambda pages: [re.sub(r"[\d.]+\s+processor\s+minutes[^)]*", "", page).split() for page in pages]
        self.assertEqual(without_times(self.write("after", "--redo", "tova")), without_times(first_pages))
        rows = [json.loads(line)["rows"] for line in path.read_text().splitlines()]
        of_first, redone, of_second = ({row["policy"] for row in of} for of in rows)
        self.assertEqual(redone, {"tova"})
        self.assertEqual(of_first, of_second - {"tova"})

    def test_the_tables_of_the_project_are_of_this_script(self):
        folder = self.folder / "pages"
        claims, again = (right_answers(of, "both_loops_claims.csv") for of in (SOURCE / "analysis", folder))
        self.assertEqual(list(claims), list(again))
        self.assertGreater(len(claims), 10)
        self.assertEqual(right_answers(SOURCE / "analysis").keys(), right_answers(folder).keys())

    def test_the_best_of_each_case_follow_from_right_answers(self):
        best = re.findall(r"^\| (?:not )?known, \d+% \| `(\S+)` (\d+) .*?then `(\S+)` (\d+)", block(CHOOSING, "the best of each case"),
                          re.MULTILINE)
        self.assertEqual(len(best), 6)
        for place, (policy, right, following, following_right) in enumerate(best):
            right_of = {each: cells[place] for each, cells in right_answers(SOURCE / "analysis").items()}
            self.assertEqual((right_of[policy], right_of[following]), (right, following_right))
            self.assertEqual([right, following_right], sorted((of for of in right_of.values() if of != "-"), key=int)[:-3:-1])

    def test_numbers_of_the_page_are_what_a_run_gives(self):
        """Of the shipped model, where it is cheap: the best two of a case."""
        model = SOURCE / "traces" / "sample" / "model"
        case = next(line for line in block(CHOOSING, "the best of each case").splitlines() if line.startswith("| not known, 10% |"))
        named = {policy: int(right) for policy, right in re.findall(r"`(\S+)` (\d+)", case.split(" | ")[2])}
        self.assertEqual(len(named), 2)
        answered = dict.fromkeys(named, 0)
        counts = re.findall(r"(\d+)\s+of\s+(?:eight|one|variables)", block(TRUST, "models").split("**shipped model**")[1])
        for kind, count in zip(("needle-multi-key --facts 8", "needle", "variables"), counts, strict=True):
            self.ok("workload", *kind.split(), "--context", 1000, "--count", count, "--tokenizer", model, "-o", "prompts.jsonl",
                    "--overwrite")
            told = self.ok("evaluate", "--model", model, "--workload", "prompts.jsonl", "--policy", ",".join(named), "--budget", "10%",
                           "--cut", "question", "--mode", "greedy", "--format", "csv", "--quiet")
            for row in csv.DictReader(told.splitlines()):
                answered[row["policy"]] += float(row["right"])
        self.assertEqual(answered, named)


if __name__ == "__main__":
    kvsim_command.main()
