#!/usr/bin/env python3
"""Tests the output of a replay: keys, formats that agree, determinism, notes."""
import json

import kvsim_command
from kvsim_command import KEYS, METRIC_KEYS, CommandTest, csv_rows, md_rows

POLICIES = ["--policy", "full", "--policy", "h2o", "--policy", "snapkv(window=8)+pyramid", "--policy", "random"]


class Results(CommandTest):
    study = ["replay", "t.h5", *POLICIES, "--budget", "10,25%"]

    def test_keys_in_order_everywhere(self):
        document = json.loads(self.ok(*self.study, "--format", "json"))
        self.assertEqual(list(document), ["schema_version", "inputs", "results"])
        for row in document["results"]:
            self.assertEqual(list(row), KEYS)
        self.assertEqual(self.ok(*self.study, "--format", "csv").splitlines()[0], ",".join(KEYS))
        self.assertEqual(list(json.loads(self.ok(*self.study, "--format", "jsonl").splitlines()[0])), KEYS)
        self.assertEqual(self.ok(*self.study, "--format", "md").splitlines()[0], "| " + " | ".join(KEYS) + " |")

    def test_formats_agree_at_every_scope(self):
        for scope, n in ("all", 1), ("layer", 3), ("head", 6):
            study = [*self.study, "--per", scope]
            expected = json.loads(self.ok(*study, "--format", "json"))["results"]
            self.assertEqual(len(expected), 4 * 2 * n)
            self.assertEqual({row["scope"] for row in expected}, {scope})
            self.assertEqual(csv_rows(self.ok(*study, "--format", "csv")), expected)
            self.assertEqual(md_rows(self.ok(*study, "--format", "md")), expected)
            lines = self.ok(*study, "--format", "jsonl").splitlines()
            self.assertEqual([json.loads(line) for line in lines], expected)

    def test_scopes_add_up(self):
        model = self.rows(*self.study[1:])
        layers = self.rows(*self.study[1:], "--per", "layer")
        heads = self.rows(*self.study[1:], "--per", "head")
        for i, row in enumerate(model):
            mine = layers[3 * i:3 * i + 3]
            lanes = heads[6 * i:6 * i + 6]
            self.assertEqual([lane["layer"] for lane in lanes], [0, 0, 1, 1, 2, 2])
            self.assertEqual([lane["head"] for lane in lanes], [0, 1] * 3)
            for key in "r", "r_oracle", "isr", "attention_loss", "output_error", "output_cosine", "kept_tokens", "evicted_tokens":
                values = [layer[key] for layer in mine]
                if None in values:
                    self.assertIsNone(row[key])
                else:
                    self.assertAlmostEqual(row[key], sum(values) / 3, places=12)
            for key in "attention_loss", "attention_loss_oracle", "output_error", "output_cosine":
                self.assertAlmostEqual(row[key], sum(lane[key] for lane in lanes) / 6, places=12)
            self.assertEqual(row["kept_bytes"], sum(lane["kept_bytes"] for lane in lanes))

    def test_steps_add_up(self):
        model = self.rows(*self.study[1:])
        steps = self.rows(*self.study[1:], "--per", "step")
        measured = self.decode + 1  # the last prompt token's row is measured again
        self.assertEqual(len(steps), len(model) * measured)
        for i, row in enumerate(model):
            mine = steps[measured * i:measured * (i + 1)]
            self.assertEqual([step["step"] for step in mine], list(range(measured)))
            self.assertEqual({step["params"] for step in mine}, {row["params"]})
            means = {"attention_loss", "attention_loss_oracle", "total_variation", "read_tokens", "loaded_tokens", "read_bytes"}
            for key in means:
                self.assertAlmostEqual(row[key], sum(step[key] for step in mine) / measured, places=9)
            for key in set(METRIC_KEYS) - means - {"kept_tokens"}:
                self.assertEqual({step[key] for step in mine}, {None})
        full = [step for step in steps if step["policy"] == "full" and step["budget"] == "10"]
        self.assertEqual([step["kept_tokens"] for step in full],
                         [self.prompt + step for step in range(measured)])
        h2o = [step["kept_tokens"] for step in steps if step["policy"] == "h2o" and step["budget"] == "10"]
        self.assertEqual(set(h2o), {10})
        one, four = (self.ok(*self.study, "--per", "step", "--format", "csv", "--threads", n) for n in "14")
        self.assertEqual(one, four)

    def test_steps_begin_where_the_cut_says_and_have_an_end(self):
        self.make_trace("prompt_only.h5", 24, 0)
        step, = self.rows("prompt_only.h5", "--policy", "h2o", "--budget", "8", "--per", "step")
        self.assertEqual((step["step"], step["kept_tokens"]), (0, 8))
        steps = self.rows("prompt_only.h5", "--policy", "h2o", "--budget", "8", "--per", "step", "--cut", 20)
        self.assertEqual([(step["step"], step["cut"]) for step in steps], [(s, "20") for s in range(1, 5)])
        self.make_trace("long.h5", 8, 1000)
        message = self.fails(2, "replay", "long.h5", "--policy", "window", "--budget", ",".join(map(str, range(1, 1002))),
                             "--per", "step")
        self.assertIn("--per step: these would be 1002001 rows", message)

    def test_rows_are_traces_then_budgets_then_policies(self):
        self.make_trace("u.h5", 64, 4, "--seed", 2)
        rows = self.rows("t.h5", "u.h5", "--policy", "tova", "--policy", "full", "--budget", "50%", "--budget", "9")
        order = [(row["trace"], row["budget"], row["policy"], row["budget_tokens"]) for row in rows]
        self.assertEqual(order, [("t.h5", "50%", "tova", 48), ("t.h5", "50%", "full", 48), ("t.h5", "9", "tova", 9),
                                 ("t.h5", "9", "full", 9), ("u.h5", "50%", "tova", 32), ("u.h5", "50%", "full", 32),
                                 ("u.h5", "9", "tova", 9), ("u.h5", "9", "full", 9)])

    def test_the_table_of_several_traces_ends_with_their_means(self):
        self.make_trace("m.h5", 64, 4, "--seed", 2)
        asked = ["t.h5", "m.h5", "--policy", "tova", "--policy", "h2o", "--budget", "50%,9"]
        rows = self.rows(*asked)
        lines = self.ok("replay", *asked, "--quiet").splitlines()
        for budget in "50%", "9":
            start = next(i for i, line in enumerate(lines) if line.startswith(f"budget {budget}"))
            means = {line.split()[3]: line for line in lines[start + 5:start + 7]}
            self.assertEqual(set(means), {"tova", "h2o"})
            for policy, line in means.items():
                self.assertTrue(line.startswith("mean of 2  "), line)
                losses = [row["attention_loss"] for row in rows if (row["budget"], row["policy"]) == (budget, policy)]
                self.assertIn(f"{sum(losses) / 2:.4f}", line.split())

    def test_traces_replayed_together_or_alone_are_the_same(self):
        self.make_trace("v.h5", 80, 6, "--seed", 3)
        both = self.rows("t.h5", "v.h5", "--policy", "h2o", "--budget", "20%", "--per", "layer")
        alone = [row for name in ("t.h5", "v.h5")
                 for row in self.rows(name, "--policy", "h2o", "--budget", "20%", "--per", "layer")]
        self.assertEqual(both, alone)

    def test_a_cell_does_not_depend_on_its_company(self):
        together = self.rows("t.h5", "--policy", "all", "--budget", "32,48", "--per", "head")
        alone = self.rows("t.h5", "--policy", "h2o", "--budget", "48", "--per", "head")
        mine = [row for row in together if row["policy"] == "h2o" and row["budget"] == "48"]
        self.assertEqual(mine, alone)

    def test_same_bytes_at_any_thread_count(self):
        for form in "json", "csv", "table":
            study = ["replay", "t.h5", "--policy", "all", "--budget", "34,50%", "--per", "head", "--format", form]
            outputs = {self.ok(*study, "--threads", n) for n in (1, 2, 8)} | {self.ok(*study)}
            self.assertEqual(len(outputs), 1)

    def test_only_random_policies_see_the_seed(self):
        study = ["t.h5", "--policy", "random", "--policy", "h2o", "--budget", "20"]
        first, again, other = self.rows(*study), self.rows(*study, "--seed", 0), self.rows(*study, "--seed", 1)
        self.assertEqual(first, again)
        of = lambda row: [row[key] for key in METRIC_KEYS]
        self.assertNotEqual(of(first[0]), of(other[0]))
        self.assertEqual(of(first[1]), of(other[1]))
        self.assertEqual((first[1]["seed"], other[1]["seed"]), (0, 1))

    def test_inputs_name_the_request(self):
        inputs = json.loads(self.ok(*self.study, "--format", "json", "--seed", "5"))["inputs"]
        self.assertEqual(inputs["budgets"], ["10", "25%"])
        self.assertEqual((inputs["seed"], inputs["scope"], inputs["loop"]), (5, "all", "open"))
        self.assertEqual(len(inputs["policies"]), 4)
        (trace,) = inputs["traces"]
        self.assertEqual((trace["trace"], trace["prompt"], trace["decode"], trace["cut"]), ("t.h5", 96, 12, "prompt"))
        self.assertEqual(inputs["importance"], "rows=8,pool=avg:7")
        self.assertEqual(inputs["peak"], "threshold=0.5,low=0.3,share=0.5,sinks=4,recent=32")
        self.assertRegex(trace["content_sha256"], "^[0-9a-f]{64}$")

    def test_params_are_a_policy_that_gives_the_same(self):
        for policy in "h2o", "pyramidkv", "xkv", "snapkv(window=8)+pyramid":
            rows = self.rows("t.h5", "--policy", policy, "--budget", "34")
            expanded = self.rows("t.h5", "--policy", rows[0]["params"], "--budget", "34")
            for row in rows + expanded:
                row.pop("policy")
            self.assertEqual(rows, expanded)

    def test_all_means_every_eviction_and_preset(self):
        policies = [row["policy"] for row in self.rows("t.h5", "--policy", "all", "--budget", "48")]
        self.assertIn("pyramidkv", policies)
        self.assertFalse([name for name in policies if "." in name or name == "optimal"])
        self.assertEqual(len(set(policies)), len(policies))
        for name in ("full", "window", "streaming_llm", "random", "l2_norm", "h2o", "tova", "snapkv", "pyramidkv", "xkv"):
            self.assertIn(name, policies)

    def test_budget_beyond_the_prompt_evicts_nothing(self):
        for budget in "96", "1000", "100%", "150%":
            for row in self.rows("t.h5", "--policy", "snapkv", "--policy", "window", "--budget", budget):
                self.assertEqual((row["r"], row["kept_tokens"]), (1, 96))
        rows = [row for row in self.rows("t.h5", "--policy", "all", "--budget", 96 + 12) if row["r"] is not None]
        self.assertGreater(len(rows), 10)
        for row in rows:
            if row["read_recall"] is not None:  # a system that stores everything and reads a part
                self.assertLess(row["read_tokens"], 96 + 12, row["policy"])
            elif row["logit_rmse"] is None:
                self.assertEqual((row["attention_loss"], row["output_error"]), (0, 0), row["policy"])
            else:  # a representation that had nothing to merge: the same up to rounding
                self.assertIsNone(row["attention_loss"])
                self.assertLess(max(row["total_variation"], row["output_error"]), 1e-5, row["policy"])

    def test_budget_of_one_token(self):
        (row,) = self.rows("t.h5", "--policy", "window", "--budget", "1")
        self.assertEqual(row["kept_tokens"], 1)
        self.assertIsNone(row["isr"])
        self.assertGreater(row["attention_loss"], 0.1)

    def test_budget_in_bytes(self):
        # 6 lanes with K and V of 16 floats take 768 bytes per token of the whole cache.
        (row,) = self.rows("t.h5", "--policy", "window", "--budget", "9KiB")
        self.assertEqual((row["budget_tokens"], row["kept_tokens"], row["kept_bytes"]), (12, 12, 9 * 1024))

    def test_prompt_of_one_window_has_no_importance(self):
        self.make_trace("short.h5", 8, 3)
        rows = self.rows("short.h5", "--policy", "full", "--policy", "window", "--budget", "4")
        for row in rows:
            self.assertEqual((row["r"], row["r_oracle"], row["isr"]), (None, None, None))
            self.assertIsNotNone(row["attention_loss"])
        text = self.ok("replay", "short.h5", "--policy", "window", "--budget", "4", "--format", "csv")
        row = next(iter(csv_rows(text)))
        self.assertEqual([key for key in KEYS[:23] if row[key] is None],
                         ["layer", "head", "evidence_loss", "evidence_held", "evidence_nowhere", "peak_loss", "r", "r_oracle", "isr"])
        self.assertRegex(self.ok("replay", "short.h5", "--policy", "window", "--budget", "4"),
                         r"\nwindow( +[\d.e-]*\d)+ +- +-( +[\d.e-]*\d)+ +- +4 ")

    def test_patterns_and_oracles(self):
        rows = self.rows("t.h5", "--policy", "?2o*", "--policy", "oracles", "--budget", "48")
        names = [row["policy"] for row in rows]
        self.assertIn("h2o", names)
        self.assertIn("optimal", names)
        self.assertNotIn("tova", names)
        loss = {row["policy"]: row["attention_loss"] for row in rows}
        self.assertLessEqual(loss["optimal"], loss["h2o"])
        table = self.ok("replay", "t.h5", "--policy", "h2o", "--policy", "window", "--policy", "optimal", "--budget", "48")
        self.assertIn("optimal knows the future: a bound at its own split, not a policy", table)
        self.assertNotIn("optimal *", table)
        self.assertIn("no policy matches", self.fails(2, "replay", "t.h5", "--policy", "zz*", "--budget", "48"))

    def test_skipped_cells_are_rows_and_notes(self):
        done = self.kvsim("replay", "t.h5", "--policy", "snapkv(window=32)", "--budget", "16,48", "--format", "json")
        self.assertEqual(done.returncode, 0)
        skipped, ran = json.loads(done.stdout)["results"]
        self.assertEqual([skipped[key] for key in METRIC_KEYS], [None] * len(METRIC_KEYS))
        self.assertIsNotNone(ran["r"])
        self.assertRegex(done.stderr, "note: .*snapkv at 16: .*32")
        self.assertIn("skipped: snapkv at 16", self.ok("replay", "t.h5", "--policy", "snapkv(window=32)", "--budget", "16,48"))

    def test_one_reason_is_said_once(self):
        asked = ["replay", "t.h5", "--policy", "h2o,tova", "--budget", "0.1%,48", "--quiet"]
        done = self.kvsim(*asked)
        self.assertIn("skipped: h2o, tova at 0.1%: ", done.stdout)
        self.assertNotIn("skipped", done.stderr)
        self.assertEqual(self.kvsim(*asked, "--format", "csv").stderr.count("skipped: h2o, tova at 0.1%: "), 1)

    def test_a_trace_that_serves_no_cell_does_not_spoil_the_others(self):
        self.make_trace("few.h5", 40, 3)
        rows = self.rows("few.h5", "t.h5", "--policy", "snapkv(window=16)", "--budget", "20%")  # 8 tokens, 19 tokens
        self.assertEqual([(row["trace"], row["r"] is None) for row in rows], [("few.h5", True), ("t.h5", False)])
        message = self.fails(2, "replay", "few.h5", "--policy", "snapkv(window=16)", "--budget", "20%", "--decisions", "d.h5")
        self.assertIn("no cell can be evaluated", message)
        self.assertFalse((self.folder / "d.h5").exists())

    def test_identical_policies_are_noted(self):
        done = self.kvsim("replay", "t.h5", "--policy", "streaming_llm(sinks=0)", "--policy", "window", "--budget", "20")
        self.assertRegex(done.stderr, r"identical results everywhere:\s+streaming_llm\(sinks=0\S*\s+window\(\)")
        self.assertNotIn("identical", self.kvsim("replay", "t.h5", "--policy", "h2o", "--policy", "window", "--budget",
                                                 "20").stderr)

    def test_repeated_requests_are_told_and_done_once(self):
        done = self.kvsim("replay", "t.h5", "--policy", "all", "--policy", "h2o", "--budget", "48,48", "--format", "jsonl")
        self.assertEqual(sum('"policy": "h2o"' in line for line in done.stdout.splitlines()), 1)
        self.assertEqual(done.stderr.count("asked for more than once"), 2)

    def test_standard_error_describes_the_work_and_quiet_silences_it(self):
        done = self.kvsim(*self.study, "--format", "csv")
        for word in "t.h5", "3 layers", "cut prompt: prompt 96", "decode 12", "cells   8", "threads", "seed 0", "Open loop":
            self.assertIn(word, done.stderr)
        self.assertEqual(self.kvsim(*self.study, "--quiet").stderr, "")
        self.assertIn("Open loop", self.ok(*self.study))

    def test_names_of_traces_survive_every_format(self):
        name = 'odd, "name" | é.h5'
        self.make_trace(name, 32, 2)
        study = ["replay", name, "--policy", "window", "--budget", "8", "--quiet"]
        self.assertEqual(json.loads(self.ok(*study, "--format", "json"))["results"][0]["trace"], name)
        self.assertEqual(csv_rows(self.ok(*study, "--format", "csv"))[0]["trace"], name)
        self.assertIn(name, self.ok(*study))


if __name__ == "__main__":
    kvsim_command.main()
