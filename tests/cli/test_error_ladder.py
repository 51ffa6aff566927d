#!/usr/bin/env python3
"""Tests what a bit buys (analysis/CHOOSING_A_POLICY.md): the commands run, the table is what they give, and the findings follow from it."""
import csv
import json
import re
import statistics

import kvsim_command
from kvsim_command import SOURCE, CommandTest
from test_readme_commands import run_each

PAGE = (SOURCE / "analysis" / "CHOOSING_A_POLICY.md").read_text()
EXAMPLES = SOURCE / "analysis" / "examples"
STUDY = json.loads((EXAMPLES / "error_ladder.json").read_text())
ERRORS = "key_error", "value_error", "logit_rmse", "total_variation", "top_overlap", "output_error"


def named(policy):
    """As the table names it: without its eviction and its file."""
    return re.sub(r",?file=\w+\.h5", "", policy.removeprefix("full+")).replace("()", "")


def shown(row):
    """The cells of a policy's line, as the table rounds them."""
    errors = [1 - row[key] if key == "top_overlap" else row[key] for key in ERRORS]
    return [f"{row['stored_bits']:.2f}", f"{row['held_bytes'] / 1024:.0f}", *(f"{error:.3f}" for error in errors)]


class ErrorLadder(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run_each(["bash analysis/examples/error_ladder.sh"], cls.folder, timeout=500)
        by_policy = {}
        with open(cls.folder / "ladder" / "results.csv") as file:
            for row in csv.DictReader(file):
                by_policy.setdefault(row["params"], []).append(row)
        assert len(by_policy) == len(STUDY["policies"])
        means = [{key: statistics.fmean(float(row[key]) for row in rows)
                  for key in ("stored_bits", "held_bytes", "kept_bytes", "sent_bytes", *ERRORS) if rows[0][key]}
                 for rows in by_policy.values()]
        cls.rows = dict(zip(map(named, STUDY["policies"]), means))

    def test_the_table_is_what_the_commands_give(self):
        with open(EXAMPLES / "error_ladder.csv") as file:
            _, *lines = csv.reader(file)
        self.assertEqual({name for name, *_ in lines}, set(self.rows))
        for name, *cells in lines:
            self.assertEqual(cells, shown(self.rows[name]), name)
        bits = [self.rows[name]["stored_bits"] for name, *_ in lines]
        self.assertEqual(bits, sorted(bits, reverse=True))

    def test_every_number_of_the_findings_is_one_of_the_table(self):
        section = re.sub(r"`[^`]*`", "", PAGE.split("## What does a bit buy?")[1].split("\n## ")[0])
        findings = " ".join(line.split("|")[3] for line in section.splitlines() if line.startswith("|"))
        cells = {cell for row in self.rows.values() for cell in shown(row)}
        numbers = re.findall(r"\d+\.\d+", findings)
        self.assertGreater(len(numbers), 15)
        for number in numbers:
            self.assertIn(number, cells)

    def test_findings(self):
        def error(name, key="output_error"):
            return self.rows[name][key]

        scalar = [f"scalar(bits={bits},group=32)" for bits in (8, 4, 3, 2)]
        for key in ERRORS:
            of = [1 - error(name, key) if key == "top_overlap" else error(name, key) for name in scalar]
            self.assertTrue(1.8 < (of[1] / of[0])**0.25 < 2.5 and 1.8 < of[2] / of[1] < 2.5 and 1.8 < of[3] / of[2] < 2.5, key)
        two_bits = error("kivi(bits=2,residual=32)", "key_error")
        self.assertLess(two_bits, 0.65 * error("scalar(bits=2,group=32)", "key_error"))
        self.assertLess(error("kvquant(bits=2)", "key_error"), two_bits)
        self.assertLess(error("kvquant(bits=2)", "stored_bits"), error("kivi(bits=2,residual=32)", "stored_bits"))
        self.assertGreater(error("matryoshka(keys=0.5,values=0.5)"), 3 * error("cskv(keys=0.5,values=0.5)"))
        self.assertEqual(max(self.rows, key=lambda name: error(name) * error(name, "stored_bits")), "minicache")
        sent = re.findall(r"makes? ([\d,]+) KiB|([\d,]+) KiB, it makes ([\d,]+) KiB|prompt's ([\d,]+) KiB", PAGE)
        quoted = sorted(int(number.replace(",", "")) for groups in sent for number in groups if number)
        real = [self.rows[name][key] / 1024 for name in ("cachegen", "cachegen.paper") for key in ("kept_bytes", "sent_bytes")]
        self.assertEqual(quoted, sorted(map(round, real)))


if __name__ == "__main__":
    kvsim_command.main()
