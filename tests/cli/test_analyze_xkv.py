#!/usr/bin/env python3
"""Tests kvsim analyze importance, retention, retention-size, allocation and allocation-consistency: columns as
documented, numbers computed here from the trace, refusals."""
import json
import re

import h5py
import kvsim_command
import numpy as np
from kvsim_command import CommandTest

KEYS = {
    "importance": ["trace", "layer", "first", "last", "share"],
    "retention": ["trace", "layer", "n", "share", "r", "isr", "isr_slope"],
    "retention-size": ["trace", "layer", "rule", "target", "n", "share", "r"],
    "allocation": ["trace", "policy", "params", "budget", "layer", "tokens", "share"],
    "allocation-consistency": ["policy", "params", "budget", "layer", "traces", "share", "share_spread", "share_low",
                               "share_high", "rank_correlation", "concordance"],
}
POLICIES = "snapkv(window=8),pyramidkv,xkv"


class AnalyzeXkv(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i in range(3):
            cls.make_trace(f"s{i}.h5", cls.prompt + 10 * i, 4, "--seed", str(i + 5))

    def results(self, kind, *arguments):
        return json.loads(self.ok("analyze", kind, *arguments, "--quiet", "--format", "json"))["results"]

    def w(self, rows, pool):
        """The weights [layer][position], from the queries and keys of the file."""
        layers = []
        with h5py.File(self.folder / "t.h5") as f:
            scale = f["model"].attrs["attn_scale"]
            for name in sorted(f["layers"]):
                q, k = (f["layers"][name][x][()].astype(float) for x in "qk")
                m, mean = self.prompt - rows, 0
                for head in range(len(q)):
                    for t in range(m, self.prompt):
                        logits = scale * (k[head * len(k) // len(q), :t + 1] @ q[head, t])
                        a = np.exp(logits - logits.max())
                        mean = mean + a[:m] / a.sum() / rows / len(q)
                layers.append(np.convolve(mean, np.ones(pool) / pool, "same"))
        return np.array(layers)

    def test_keys_are_those_that_are_promised(self):
        for kind, keys in KEYS.items():
            with self.subTest(kind):
                more = ["--policies", POLICIES, "--budget", "25%"] if "allocation" in kind else []
                rows = self.results(kind, "s0.h5", "s1.h5", *more)
                for row in rows:
                    self.assertEqual(list(row), keys)
                threads = [self.ok("analyze", kind, "s0.h5", "s1.h5", *more, "--quiet", "--format", "csv", "--threads", n)
                           for n in (1, 2)]
                self.assertEqual(*threads)
                self.assertEqual(threads[0].splitlines()[0].split(","), keys)

    def test_importance_is_the_attention_of_the_last_rows(self):
        for rows, pool in (8, 7), (3, 1):
            w = self.w(rows, pool)
            got = self.results("importance", "t.h5", "--bins", "0", "--rows", rows, "--pool", pool)
            self.assertEqual(len(got), w.size)
            for row in got:
                self.assertEqual(row["first"], row["last"])
                self.assertAlmostEqual(row["share"], w[row["layer"], row["first"]] / w[row["layer"]].sum(), places=6)
            for row in self.results("importance", "t.h5", "--bins", "5", "--rows", rows, "--pool", pool):
                span = w[row["layer"], row["first"]:row["last"] + 1]
                self.assertAlmostEqual(row["share"], span.sum() / w[row["layer"]].sum(), places=6)

    def test_retention_of_the_largest(self):
        w = -np.sort(-self.w(8, 7), axis=1)
        r = np.cumsum(w, axis=1) / w.sum(axis=1, keepdims=True)
        for row in self.results("retention", "t.h5"):
            n, of = row["n"], r[row["layer"]]
            self.assertAlmostEqual(row["r"], of[n - 1], places=6)
            self.assertAlmostEqual(row["share"], n / w.shape[1])
            if n > 1:
                self.assertAlmostEqual(row["isr"], of[n - 1] / np.log2(n), places=6)
            if n > 2:
                self.assertAlmostEqual(row["isr_slope"], of[n - 1] / np.log2(n) - of[n - 2] / np.log2(n - 1), places=6)
        for row in self.results("retention-size", "t.h5"):
            if row["rule"] == "retention":
                self.assertEqual(row["n"], 1 + np.argmax(r[row["layer"]] >= row["target"]))

    def test_tokens_are_those_that_a_replay_gives(self):
        given = self.results("allocation", "t.h5", "--policies", POLICIES, "--budget", "25%")
        replayed = self.rows("t.h5", "--policy", "snapkv(window=8)", "--policy", "pyramidkv", "--policy", "xkv", "--budget",
                             "25%", "--per", "layer")
        self.assertEqual([(row["policy"], row["layer"], row["tokens"]) for row in given],
                         [(row["policy"], row["layer"], row["budget_tokens"]) for row in replayed])
        for first in range(0, 9, 3):
            self.assertAlmostEqual(sum(row["share"] for row in given[first:first + 3]), 1)

    def test_a_replay_of_xkv_retains_what_the_curve_says(self):
        """XKV keeps the last 8 tokens and the n largest of the layer's importance: R(n), measured by replay."""
        curve = {(row["layer"], row["n"]): row["r"] for row in self.results("retention", "t.h5", "--points", "64")}
        for row in self.rows("t.h5", "--policy", "xkv", "--budget", "25%", "--per", "layer"):
            self.assertAlmostEqual(row["r"], curve[row["layer"], row["kept_tokens"] - 8])
            self.assertAlmostEqual(row["r"], row["isr"] * np.log2(row["kept_tokens"] - 8))

    def test_consistency_is_over_the_shares_of_the_traces(self):
        study = ["--policies", "xkv,pyramidkv", "--budget", "25%"]
        traces = ["s0.h5", "s1.h5", "s2.h5"]
        each = np.array([[row["share"] for row in self.results("allocation", trace, *study)] for trace in traces])
        rows = self.results("allocation-consistency", *traces, *study)
        np.testing.assert_allclose([row["share"] for row in rows], each.mean(axis=0))
        np.testing.assert_allclose([row["share_spread"] for row in rows], each.std(axis=0), atol=1e-12)
        np.testing.assert_allclose([row["share_high"] for row in rows], each.max(axis=0))
        self.assertEqual([row["traces"] for row in rows], [3] * 6)
        self.assertEqual({row["concordance"] for row in rows[3:]}, {1})
        one = self.results("allocation-consistency", "s0.h5", *study)
        self.assertEqual({row[key] for row in one for key in ("share_spread", "rank_correlation", "concordance")}, {None})

    def test_what_cannot_be_is_refused(self):
        self.make_trace("short.h5", 8, 2)
        self.ok("trace", "generate", "--layers", "2", "--prompt-tokens", "96", "--decode", "4", "-o", "other.h5")
        for arguments, reason in [
            (["importance", "short.h5"], "prompt of 8 tokens"),
            (["importance", "t.h5", "--pool", "6"], "not odd"),
            (["retention", "t.h5", "--rows", "x"], "--rows"),
            (["retention-size", "t.h5", "--r", "110%"], "--r"),
            (["allocation", "t.h5", "--policies", "xkvv"], "xkv"),
            (["allocation", "t.h5", "--policies", "xkv", "--budget", "4"], "keeps 8 tokens"),
            (["allocation-consistency", "t.h5", "other.h5", "--budget", "50"], "other.h5: has 2 layers, 't.h5' 3"),
        ]:
            with self.subTest(" ".join(arguments)):
                self.assertTrue(re.search(re.escape(reason), self.fails(2, "analyze", *arguments, "--quiet")))


if __name__ == "__main__":
    kvsim_command.main()
