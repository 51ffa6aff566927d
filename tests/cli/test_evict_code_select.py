#!/usr/bin/env python3
"""Tests evict, code or select (analysis/CHOOSING_A_POLICY.md): the commands run, the table is what they give, and the findings follow from it."""
import csv
import io
import json
import re
import statistics

import kvsim_command
from kvsim_command import SOURCE, CommandTest
from test_readme_commands import run_each, shown_commands

FOLD = re.search(r'<details id="select_commands">(.*?)</details>', (SOURCE / "analysis" / "CHOOSING_A_POLICY.md").read_text(), re.DOTALL)[1]
EXAMPLES = SOURCE / "analysis" / "examples"
POLICIES = json.loads((EXAMPLES / "evict_code_select.json").read_text())["policies"]

FRONTS = {"pareto": ["snapkv", "full+q4_0", "full+kivi(bits=4)", "full"],
          "read-pareto": ["full+pqcache", "full+top_tokens", "full+kivi(bits=4)", "full"]}


def mean(rows, key):
    return statistics.fmean(float(row[key] or 0) for row in rows)


class EvictCodeSelect(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run_each([command for command, _ in shown_commands(FOLD)], cls.folder, timeout=800)
        with open(cls.folder / "choice" / "tables" / "answers.csv") as file:
            answers = list(csv.DictReader(file))
        named = dict(zip(dict.fromkeys(row["params"] for row in answers), POLICIES))
        assert len(named) == len(POLICIES)
        with open(cls.folder / "choice" / "results.csv") as file:
            replayed = [row for row in csv.DictReader(file) if row["scope"] == "all"]
        cls.rows = {}
        for cut in "prompt", "question":
            for params, policy in named.items():
                mine = [row for row in answers if (row["cut"], row["params"]) == (cut, params)]
                greedy = [row for row in mine if row["right"]]
                assert len(greedy) == 16
                cls.rows[cut, policy] = {
                    "stored": (mean(mine, "held_bytes") + mean(mine, "index_bytes")) / 1024,
                    "read": mean(mine, "read_bytes") / 1024, "right": mean(greedy, "right"),
                    "error": mean([row for row in replayed if (row["cut"], row["params"]) == (cut, params)], "output_error")}

    def of(self, policy, cut="question"):
        return self.rows[cut, policy]

    def test_the_table_is_what_the_command_gives(self):
        with open(EXAMPLES / "evict_code_select.csv") as file:
            _, *lines = csv.reader(file)
        self.assertEqual([name for name, *_ in lines], POLICIES)
        for name, *cells in lines:
            row = self.of(name)
            self.assertEqual(cells, [f"{row['stored']:.0f}", f"{row['read']:.0f}", f"{100 * row['right']:.0f} %", f"{row['error']:.3f}"], name)

    def test_fronts_of_the_figures(self):
        for command, shown in ("pareto", "held"), ("read-pareto", "read"):
            self.assertIn(f"examples/evict_code_select_{shown}.svg", FOLD)
            rows = list(csv.DictReader(io.StringIO(self.ok("plot", command, "choice", "--cut", "question", "--metric", "output_error",
                                                           "--format", "csv"))))
            x = next(key for key in rows[0] if key.endswith("_kib"))
            front = [(row[x], row["output_error"]) for row in rows if row["policy"] == "front"]
            named = [next(row["policy"] for row in rows if row["policy"] != "front" and (row[x], row["output_error"]) == spot)
                     for spot in front]
            self.assertEqual(named, FRONTS[command])

    def test_findings(self):
        answering = {name for name in POLICIES if self.of(name)["right"] == 1}
        known = {name for name in POLICIES if self.of(name, "prompt")["right"] < 1}
        self.assertEqual(known, {"keydiff", "full+recent_tokens(read=25%)", "full+random_tokens(read=25%)"})
        codes, pq = self.of("full+kivi"), self.of("full+pqcache(read=10%,dense=0)")
        self.assertIn("full+kivi", answering)
        self.assertTrue(1.05 < codes["stored"] / self.of("snapkv")["stored"] < 1.2)
        self.assertIn("full+pqcache(read=10%,dense=0)", answering)
        self.assertLess(pq["read"], 0.55 * codes["read"])
        both, recent = self.of("full+kivi+quest(read=15%,page=4,dense=0)"), self.of("full+recent_tokens(read=25%)")
        self.assertGreater(both["read"], codes["read"])
        self.assertEqual(recent["right"], self.of("full+random_tokens(read=25%)")["right"])
        larger = [name for name in answering if self.of(name)["error"] > recent["error"]]
        self.assertEqual((len(larger), len(answering - {"full"})), (4, 9))
        pages = self.of("full+quest(read=15%,page=4,dense=0)")  # of what is read, index aside
        index = pages["stored"] - self.of("full")["stored"]
        self.assertTrue(0.23 < (pages["read"] - index) / self.of("full")["read"] < 0.27)
        top = self.of("full+top_tokens(read=10%)")
        self.assertEqual((top["right"], self.of("snapkv+quest(read=20%,page=4,dense=0)", "prompt")["right"]), (1, 1))


if __name__ == "__main__":
    kvsim_command.main()
