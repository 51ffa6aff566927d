#!/usr/bin/env python3
"""Tests kvsim allocate: allocations averaged over some runs and applied to others."""
import json

import kvsim_command
from kvsim_command import CommandTest


class Allocate(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i in range(3):
            cls.make_trace(f"s{i}.h5", cls.prompt, cls.decode, "--seed", str(i + 5))

    def shares(self, *arguments):
        return json.loads(self.ok("allocate", *arguments, "--quiet"))

    def test_one_run_s_shares_give_it_the_same_budgets(self):
        policy = "snapkv(window=8,unit=layer)"
        self.ok("allocate", "s0.h5", "--policy", policy + "+xkv", "--budget", "25%", "-o", "one.json", "--quiet")
        rows = [self.rows("s0.h5", "--policy", f"{policy}+{allocation}", "--budget", "25%", "--per", "layer")
                for allocation in ("xkv", "fixed(shares=one.json)")]
        self.assertEqual([r["budget_tokens"] for r in rows[0]], [r["budget_tokens"] for r in rows[1]])

    def test_shares_of_several_runs_are_averaged(self):
        each = [self.shares(f"s{i}.h5", "--policy", "xkv", "--budget", "25%")["shares"] for i in range(3)]
        mean = self.shares("s0.h5", "s1.h5", "s2.h5", "--policy", "xkv", "--budget", "25%")
        self.assertEqual(mean["traces"], ["s0.h5", "s1.h5", "s2.h5"])
        self.assertEqual(mean["budget"], "25%")
        for layer in range(3):
            for head in range(2):
                self.assertAlmostEqual(mean["shares"][layer][head], sum(s[layer][head] for s in each) / 3)
        self.assertAlmostEqual(sum(map(sum, mean["shares"])), 1)

    def test_a_target_s_sizes_are_averaged_and_applied_as_they_are(self):
        target = ["--policy", "xkv(r_avg=0.6)", "--budget", "100%"]
        each = [self.shares(f"s{i}.h5", *target)["tokens"] for i in range(3)]
        mean = self.shares("s0.h5", "s1.h5", "s2.h5", *target)
        self.assertNotIn("shares", mean)
        for layer in range(3):
            for head in range(2):
                self.assertAlmostEqual(mean["tokens"][layer][head], sum(s[layer][head] for s in each) / 3)
        self.ok("allocate", "s0.h5", *target, "-o", "tokens.json", "--quiet")
        rows = [self.rows("s0.h5", "--policy", policy, "--budget", "100%", "--per", "layer")
                for policy in ("xkv(r_avg=0.6)", "snapkv(window=8,pool=avg:7,unit=layer)+fixed(shares=tokens.json,as=tokens)")]
        self.assertEqual([r["kept_tokens"] for r in rows[0]], [r["kept_tokens"] for r in rows[1]])
        self.assertLess(sum(r["kept_tokens"] for r in rows[0]), 3 * int(self.prompt))

    def test_a_sample_looks_at_some(self):
        arguments = ["s0.h5", "s1.h5", "s2.h5", "--policy", "xkv", "--budget", "25%", "--sample", "0.4"]
        chosen = {tuple(self.shares(*arguments, "--seed", str(seed))["traces"]) for seed in range(8)}
        self.assertTrue(all(len(traces) == 1 for traces in chosen))
        self.assertGreater(len(chosen), 1)

    def test_what_cannot_be_is_refused(self):
        self.ok("trace", "generate", "--layers", "3", "--kv-heads", "1", "--head-dim", "16", "--prompt-tokens", self.prompt,
                "--decode", self.decode, "-o", "wide.h5")
        for arguments, reason in [
            (["t.h5", "wide.h5", "--policy", "xkv", "--budget", "25%"], "wide.h5: has 3 layers of 1 KV heads"),
            (["t.h5", "--policy", "xkv", "--budget", "4"], "keeps 8 tokens"),
            (["t.h5", "--policy", "xkv", "--budget", "25%", "-o", "t.h5"], "t.h5"),
            (["t.h5", "--policy", "xkv", "--budget", "25%", "--sample", "2"], "--sample"),
        ]:
            with self.subTest(reason):
                done = self.kvsim("allocate", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(reason, done.stderr)

    def test_a_file_that_does_not_fit_is_refused_by_replay(self):
        (self.folder / "other.csv").write_text("1\n2\n")
        done = self.kvsim("replay", "t.h5", "--policy", "snapkv(window=8)+fixed(shares=other.csv)", "--budget", "25%")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("has 2 layers, the run 3", done.stderr)

    def test_spending_another_total_is_said(self):
        done = self.kvsim("replay", "t.h5", "--policy", "snapkv(window=8)+zipvl(variant=official)", "--budget", "25%",
                          "--format", "json")
        row = json.loads(done.stdout)["results"][0]
        self.assertNotEqual(row["allotted_tokens"], row["budget_tokens"])
        self.assertIn("its formula has its own total", done.stderr)


if __name__ == "__main__":
    kvsim_command.main()
