#!/usr/bin/env python3
"""Tests that what is asked for many times costs many times as much and no more, and that what cannot be done is refused before any
of it is."""
import csv
import gzip
import json
import resource

import kvsim_command
from kvsim_command import SOURCE, CommandTest


class Growth(CommandTest):
    prompt, decode = 64, 4

    def study(self, name, **fields):
        study = {"report": False, "statistics": {"resamples": 100}, "budgets": [20], **fields}
        (self.folder / f"{name}.json").write_text(json.dumps(study))
        return "study", f"{name}.json", "-o", name, "--quiet"

    @staticmethod
    def policies(n):
        return [f"h2o(recent={(i + 1) / (n + 2):.6f})" for i in range(n)]

    def seconds(self, *command, code=0):
        """Processor time, and what was said."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.kvsim(*command)
        self.assertEqual(done.returncode, code, done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr

    def test_policies_of_a_study(self):
        few, _ = self.seconds(*self.study("few", traces=["t.h5"], policies=self.policies(200)))
        many, said = self.seconds(*self.study("many", traces=["t.h5"], policies=self.policies(800)))
        self.assertLess(many, 8 * few)  # 16 would be the square
        self.assertIn("Differences are those with the best", said)
        with gzip.open(self.folder / "many/tables/differences.csv.gz", "rt") as file:
            rows = list(csv.DictReader(file))
        with open(self.folder / "many/tables/ranks.csv") as file:
            best = {(row["metric"], row["cut"]): row["params"] for row in csv.DictReader(file) if row["rank"] == "1"}
        of_one = [row for row in rows if (row["metric"], row["cut"]) == ("attention_loss", "prompt")]
        self.assertEqual(len(of_one), 799)
        if ("attention_loss", "prompt") in best:
            self.assertTrue(all(best["attention_loss", "prompt"] in (row["params"], row["other_params"]) for row in of_one))

    def test_few_policies_are_all_compared(self):
        self.ok(*self.study("all", traces=["t.h5"], policies=self.policies(20)))
        with gzip.open(self.folder / "all/tables/differences.csv.gz", "rt") as file:
            rows = [row for row in csv.DictReader(file) if (row["metric"], row["cut"]) == ("attention_loss", "prompt")]
        self.assertEqual(len(rows), 190)

    def test_prompts_beyond_the_context_are_not_made(self):
        capture = {"model": str(SOURCE / "traces/sample/model"), "max_new_tokens": 1,
                   "workloads": [{"kind": "needle", "context": 100000, "count": 1000}]}
        took, said = self.seconds(*self.study("long", capture=capture, policies=["h2o"]), code=2)
        self.assertIn("capture.workloads[0].context: asks for 100000 tokens, the model's context is 2048", said)
        self.assertLess(took, 2)

    def test_a_grid_of_many_cells_is_told_at_once(self):
        grid = self.study("grid", traces=["t.h5"], policies=self.policies(500), budgets=list(range(1, 201)))
        _, said = self.seconds(*grid, "--print-config")
        self.assertIn("note: 100000 cells are asked for", said)
        _, said = self.seconds(*self.study("grid", traces=["t.h5"], policies=self.policies(50)), "--print-config")
        self.assertNotIn("cells are asked for", said)


if __name__ == "__main__":
    kvsim_command.main()
