#!/usr/bin/env python3
"""Tests kvsim agreement: rows of both loops of the shipped sample model, joined and compared."""
import csv
import io
import json
import statistics
import sys

import kvsim_command
from kvsim_command import SOURCE, CommandTest

sys.path.insert(0, str(SOURCE / "analysis" / "reproductions"))
from order_agreement import tau_b  # noqa: E402

MODEL = SOURCE / "traces" / "sample" / "model"
POLICIES = ["keydiff", "h2o", "window", "snapkv", "full"]
MEAN = statistics.fmean


class Agreement(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def must(*arguments):
            done = cls.kvsim(*arguments)
            assert done.returncode == 0, done.stderr

        must("workload", "needle-multi-key", "--context", 300, "--count", 4, "--tokenizer", MODEL, "-o", "keys.jsonl")
        cls.items = [json.loads(line)["id"] for line in (cls.folder / "keys.jsonl").read_text().splitlines()]
        traces = [f"runs/{item}.h5" for item in cls.items]
        (cls.folder / "runs").mkdir()
        for item, trace in zip(cls.items, traces):
            must("capture", "--model", MODEL, "--workload", "keys.jsonl", "--item", item, "--max-new-tokens", 0, "-o", trace,
                 "--quiet")
        cells = [word for policy in POLICIES for word in ("--policy", policy)]
        cells += ["--budget", "20%,40%", "--cut", "prompt,question", "--quiet"]
        must("replay", *traces, *cells, "--format", "csv", "-o", "open.csv")
        for form in "csv", "json", "jsonl":
            must("evaluate", "--model", MODEL, "--workload", "keys.jsonl", *cells, "--format", form, "-o", f"closed.{form}")

    def table(self, *arguments):
        text = self.ok("agreement", *arguments, "--format", "csv")
        return list(csv.DictReader(io.StringIO(text)))

    def read(self, name):
        with open(self.folder / name, newline="") as file:
            return list(csv.DictReader(file))

    def means(self, rows, key, cut, budget):
        """{params: mean over items}, of the rows that have the number."""
        values = {}
        for row in rows:
            if row["cut"] == cut and row["budget"] == budget and row[key] != "" and row["policy"] != "full":
                values.setdefault(row["params"], []).append(float(row[key]))
        self.assertEqual({len(each) for each in values.values()}, {len(self.items)})
        return {params: MEAN(each) for params, each in values.items()}

    def test_tau_is_that_of_the_means_of_both_files(self):
        opened, closed = self.read("open.csv"), self.read("closed.csv")
        rows = self.table("open.csv", "closed.csv", "--open", "attention_loss,evidence_loss", "--closed", "right,kl,log_p")
        self.assertEqual(len(rows), 2 * 2 * 2 * 3)  # cuts, budgets, open and closed measures
        signs = {"right": -1, "kl": 1, "log_p": -1}  # of a loss: less is better
        ordered = 0
        for row in rows:
            cell = row["cut"], row["budget"]
            loss, answer = self.means(opened, row["open"], *cell), self.means(closed, row["closed"], *cell)
            self.assertEqual(set(loss), set(answer))
            params = sorted(loss)
            tau = tau_b([loss[each] for each in params], [signs[row["closed"]] * answer[each] for each in params])
            if tau is None:
                self.assertEqual(row["tau"], "")
            else:
                ordered += 1
                self.assertAlmostEqual(float(row["tau"]), tau, places=9)
            self.assertEqual((row["workload"], row["policies"], row["items"]), ("needle-multi-key", "4", "4"))
        self.assertGreater(ordered, 12)

    def test_files_come_in_any_order_and_format(self):
        found = self.ok("agreement", "open.csv", "closed.csv", "--format", "csv")
        for files in (["closed.csv", "open.csv"], ["open.csv", "closed.json"], ["open.csv", "closed.jsonl"]):
            self.assertEqual(self.ok("agreement", *files, "--format", "csv"), found)

    def test_the_folder_of_a_study_holds_both(self):
        tables = self.folder / "study" / "tables"
        tables.mkdir(parents=True)
        # A study calls traces by their names, without folder and .h5.
        (tables.parent / "results.csv").write_text((self.folder / "open.csv").read_text().replace("runs/", "").replace(".h5,", ","))
        (tables / "answers.csv").write_text((self.folder / "closed.csv").read_text())
        self.assertEqual(self.table("study"), self.table("open.csv", "closed.csv"))

    def test_the_other_tables(self):
        choices = self.table("open.csv", "closed.csv", "--table", "choices", "--closed", "kl")
        self.assertEqual({row["items"] for row in choices}, {"2"})
        for row in choices:
            self.assertGreaterEqual(float(row["best_tau"]), float(row["tau"]))
        thresholds = self.table("open.csv", "closed.csv", "--table", "thresholds", "--open", "evidence_loss")
        self.assertEqual(len(thresholds), 2 * 2)
        for row in thresholds:
            self.assertEqual(int(row["within"]) + int(row["beyond"]), 4)
            self.assertLessEqual(int(row["within_kept"]), int(row["within"]))

    def test_people_are_told_what_is_left_out(self):
        text = self.ok("agreement", "open.csv", "closed.csv", "--closed", "right", "--open", "peak_loss")
        self.assertIn("Not compared, as they keep what they like whatever the budget: full.", text)

    def test_the_figure_shows_the_means_of_both_files(self):
        text = self.ok("plot", "agreement", "open.csv", "closed.csv", "--metric", "attention_loss", "--cut", "question",
                       "--format", "csv")
        shown = {(row["budget"].split(":")[0], row["policy"]): row for row in csv.DictReader(io.StringIO(text))}
        self.assertEqual(set(shown), {(budget, policy) for budget in ("20%", "40%") for policy in POLICIES if policy != "full"})
        params = {row["policy"]: row["params"] for row in self.read("open.csv")}
        for (budget, policy), row in shown.items():
            for name, file, key in (("attention_loss", "open.csv", "attention_loss"), ("right", "closed.csv", "right")):
                means = self.means(self.read(file), key, "question", budget)
                self.assertAlmostEqual(float(row[name]), means[params[policy]], places=12)
        self.assertIn("needs rows of kvsim replay and of kvsim evaluate", self.fails(2, "plot", "agreement", "open.csv"))

    def test_mistakes(self):
        both = "open.csv", "closed.csv"
        self.assertIn("Did you mean peak_loss", self.fails(2, "agreement", *both, "--open", "peek_loss"))
        self.assertIn("Did you mean right", self.fails(2, "agreement", *both, "--closed", "rigth"))
        self.assertIn("Did you mean thresholds", self.fails(2, "agreement", *both, "--table", "treshold"))
        self.assertIn("no rows of a model that answers", self.fails(2, "agreement", "open.csv"))
        self.assertIn("no rows of a replay", self.fails(2, "agreement", "closed.csv"))
        self.assertIn("two rows of", self.fails(3, "agreement", "open.csv", *both))
        (self.folder / "other.csv").write_text("a,b\n1,2\n")
        self.assertIn("rows neither of a replay nor", self.fails(3, "agreement", "other.csv"))
        self.assertIn("is not from 0 to 1", self.fails(2, "agreement", *both, "--kept", "2"))


if __name__ == "__main__":
    kvsim_command.main()
