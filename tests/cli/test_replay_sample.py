#!/usr/bin/env python3
"""Tests laws that a replay of a real run must obey, on a capture of the shipped sample model."""
import gzip
import json

import kvsim_command
from kvsim_command import SOURCE, CommandTest

BUDGETS = ["10%", "25%", "50%"]
# Keeps by a threshold; keeps whole pages; keeps the newest 4,000 tokens in every head, which is all of them.
OWN_SIZES = {"fastgen", "openvino"}


class Sample(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sample = SOURCE / "traces" / "sample"
        made = cls.kvsim("capture", "--model", sample / "model", "--prompt", sample / "prompts" / "needle-1000-multi.txt",
                         "--max-new-tokens", 32, "--ignore-eos", "-o", "sample.h5")
        assert made.returncode == 0, made.stderr
        policies = ["all", "h2o+pyramid", "snapkv+xkv", "optimal+best_split", "future_mean+best_split"]
        (cls.folder / "s.json").write_text(json.dumps({"traces": ["sample.h5"], "policies": policies, "budgets": BUDGETS,
                                                       "scopes": ["all", "layer", "head"], "report": False}))
        done = cls.kvsim("study", "s.json", "-o", "d", "--quiet")
        assert done.returncode == 0, done.stderr
        cls.cells = {"all": kvsim_command.csv_rows((cls.folder / "d/results.csv").read_text())}
        for scope in "layer", "head":
            cls.cells[scope] = kvsim_command.csv_rows(gzip.decompress((cls.folder / f"d/results-{scope}.csv.gz").read_bytes()).decode())

    def every_row(self):
        """The rows that ran: some policies cannot honour every budget."""
        for scope, rows in self.cells.items():
            for row in rows:
                if row["r"] is None or row["attention_loss"] is None:  # did not run, or stores other numbers
                    continue
                with self.subTest(scope=scope, policy=row["policy"], budget=row["budget"], layer=row["layer"],
                                  head=row["head"]):
                    yield row

    def test_the_oracles_dominate_every_policy(self):
        for row in self.every_row():
            self.assertLessEqual(row["r"], row["r_oracle"] + 1e-9)
            self.assertGreaterEqual(row["attention_loss"], row["attention_loss_oracle"] - 1e-9)

    def test_no_policy_passes_the_bound_of_its_class_and_the_best_splits_reach_it(self):
        bounds = {}
        for row in self.cells["all"]:
            if row["r"] is None or row["holding"] is None:
                self.assertIsNone(row["attention_loss_bound"])
                continue
            if row["attention_loss"] is None:
                continue
            with self.subTest(policy=row["policy"], budget=row["budget"]):
                self.assertGreaterEqual(row["attention_loss"], row["attention_loss_bound"] - 2e-6)
                self.assertLessEqual(row["r"], row["r_bound"] + 1e-9)
                self.assertLessEqual(row["r_oracle"], row["r_bound"] + 1e-9)
                if row["policy"].endswith("+best_split"):
                    self.assertAlmostEqual(row["attention_loss"], row["attention_loss_bound"], delta=2e-6)
                    bounds[row["holding"], row["budget"]] = row["attention_loss"]
        for budget in BUDGETS:
            self.assertLess(bounds["append_only", budget], bounds["managed", budget])

    def test_shares_are_shares(self):
        for row in self.every_row():
            for key in "r", "r_oracle", "attention_loss", "attention_loss_oracle":
                self.assertGreaterEqual(row[key], 0)
                self.assertLessEqual(row[key], 1 + 1e-9)
            self.assertGreaterEqual(row["output_error"], 0)

    def test_nearly_every_cell_runs(self):
        ran = [row for row in self.cells["all"] if row["r"] is not None]
        self.assertGreater(len(ran), 0.9 * len(self.cells["all"]))

    def test_full_loses_nothing(self):
        rows = [row for row in self.every_row() if row["policy"] == "full"]
        self.assertTrue(rows)
        for row in rows:
            self.assertEqual((row["attention_loss"], row["attention_loss_oracle"], row["output_error"]), (0, 0, 0))
            self.assertAlmostEqual(row["r"], 1, places=9)

    def test_every_other_policy_loses_something_and_keeps_its_budget(self):
        for row in self.cells["all"]:
            if row["role"] == "own_budget" or row["r"] is None:  # these may keep everything
                continue
            if row["attention_loss"] is not None:
                self.assertGreater(row["attention_loss"], 0)
            if row["policy"] not in OWN_SIZES:
                self.assertLessEqual(row["kept_tokens"], row["budget_tokens"])

    def test_retention_rises_with_the_budget(self):
        for policy in {row["policy"] for row in self.cells["all"] if row["role"] == "policy"} - OWN_SIZES:
            mine = [row for row in self.cells["all"] if row["policy"] == policy and row["r"] is not None]
            for small, large in zip(mine, mine[1:]):
                self.assertGreater(large["r"], small["r"], policy)
                self.assertGreater(large["r_oracle"], small["r_oracle"], policy)

    def test_xkv_retains_more_than_any_other_split(self):
        eviction = "snapkv(window=8,pool=avg:7,unit=layer)"
        splits = [f"{eviction}+{name}" for name in ("xkv", "uniform", "pyramid", "pyramid(beta=4)", "pyramid(beta=60)")]
        options = [option for split in splits for option in ("--policy", split)]
        rows = self.rows("sample.h5", *options, "--budget", ",".join(["5%", *BUDGETS, "75%"]))
        for i in range(0, len(rows), len(splits)):
            best, *others = rows[i:i + len(splits)]
            self.assertIn("+xkv", best["params"])
            for other in others:
                self.assertEqual(other["kept_tokens"], best["kept_tokens"], other["params"])
                self.assertGreaterEqual(best["r"], other["r"] - 1e-9, other["params"])

    def test_random_keeps_about_its_share(self):
        for budget, share in ("10%", 0.10), ("25%", 0.25), ("50%", 0.50):
            found = [self.rows("sample.h5", "--policy", "random", "--budget", budget, "--seed", seed)[0]["r"]
                     for seed in range(6)]
            self.assertAlmostEqual(sum(found) / len(found), share, delta=0.06)

    def test_ranking_by_the_measure_itself_reaches_the_oracle(self):
        # w is SnapKV's score with window 8 and average pooling 7, so choosing by it per lane equals the oracle.
        for row in self.rows("sample.h5", "--policy", "snapkv(window=8,pool=avg:7,unit=lane)", "--budget", ",".join(BUDGETS),
                             "--per", "head"):
            self.assertAlmostEqual(row["r"], row["r_oracle"], places=6)


if __name__ == "__main__":
    kvsim_command.main()
