#!/usr/bin/env python3
"""Tests kvsim analyze ranking-loss, cumulative-loss, persistence, heads, key-norms: columns as promised, one number
of each computed here, refusals."""
import json

import h5py
import kvsim_command
import numpy as np
from kvsim_command import CommandTest, columns_of

KINDS = ["ranking-loss", "cumulative-loss", "persistence", "heads", "key-norms"]


class AnalyzeKeys(CommandTest):
    def results(self, kind, *more):
        return json.loads(self.ok("analyze", kind, "t.h5", "--quiet", "--format", "json", *more))["results"]

    def lane(self, layer, head):
        """Attention [T, T] of query heads 2 head and 2 head + 1, and keys [T, d]."""
        with h5py.File(self.folder / "t.h5") as f:
            group, scale = f[f"layers/{layer:04d}"], f["model"].attrs["attn_scale"]
            keys = group["k"][head].astype(float)
            rows = []
            for query_head in 2 * head, 2 * head + 1:
                logits = scale * group["q"][query_head].astype(float) @ keys.T
                weights = np.tril(np.exp(logits - logits.max(axis=1, keepdims=True)))
                rows.append(weights / weights.sum(axis=1, keepdims=True))
        return np.array(rows), keys

    def test_columns_are_those_that_are_promised(self):
        for kind in KINDS:
            document = json.loads(self.ok("analyze", kind, "t.h5", "--quiet", "--format", "json"))
            keys = [column["key"] for column in document["columns"]]
            self.assertEqual(keys, columns_of(f"analyze {kind}"), kind)
            self.assertEqual(list(document["results"][0]), keys)
            self.assertEqual(document["inputs"]["analysis"], kind)

    def test_ranking_loss(self):
        rows = self.results("ranking-loss", "--rankings", "l2_norm,h2o(recent=0),recency")
        self.assertEqual([(row["ranking"], row["layer"], row["head"]) for row in rows],
                         [(ranking, layer, head) for ranking in ("l2_norm", "h2o(recent=0)", "recency")
                          for layer in range(3) for head in range(2)])
        attention, keys = self.lane(2, 1)
        mean = attention[:, :self.prompt, :self.prompt].mean(axis=(0, 1))
        least = np.cumsum(np.sort(mean))
        by_norm = np.cumsum(mean[np.argsort(-np.linalg.norm(keys[:self.prompt], axis=1))])
        row = rows[5]
        self.assertAlmostEqual(row["alr"], (by_norm - least).sum(), delta=1e-3)
        self.assertAlmostEqual(row["alr_max"], (np.cumsum(np.sort(mean)[::-1]) - least).sum(), delta=1e-3)
        self.assertAlmostEqual(row["alr_share"], row["alr"] / row["alr_max"], places=12)
        self.assertEqual(row["tokens"], self.prompt)
        self.assertEqual({row["alr"] for row in rows if row["ranking"].startswith("h2o")}, {0})

    def test_cumulative_loss(self):
        rows = self.results("cumulative-loss", "--rankings", "recency", "--dropped", "0,0.25,100%", "--mean", "visible")
        self.assertEqual([(row["layer"], row["dropped"]) for row in rows],
                         [(layer, share) for layer in range(3) for share in (0, 0.25, 1)])
        loss, ideal = [], []
        for head in 0, 1:
            attention = self.lane(1, head)[0][:, :self.prompt, :self.prompt].mean(axis=0)
            mean = attention.sum(axis=0) / np.arange(self.prompt, 0, -1)
            loss.append(mean[:24].sum())
            ideal.append(np.sort(mean)[:24].sum())
        self.assertAlmostEqual(rows[4]["loss"], np.mean(loss), delta=1e-5)
        self.assertAlmostEqual(rows[4]["loss_ideal"], np.mean(ideal), delta=1e-5)
        self.assertEqual((rows[3]["loss"], rows[3]["loss_ideal"]), (0, 0))
        self.assertAlmostEqual(rows[5]["loss"], rows[5]["loss_ideal"], places=12)

    def test_persistence(self):
        rows = self.results("persistence", "--split", "prompt", "--early-rows", "10", "--times", "2")
        attention = self.lane(2, 0)[0].mean(axis=0)
        length = self.prompt + self.decode
        above = attention > 2 / np.arange(1, length + 1)[:, None]
        early = above[self.prompt - 10:self.prompt, :self.prompt].any(axis=0)
        late = above[self.prompt:, :self.prompt].any(axis=0)
        row = rows[4]
        self.assertEqual((row["layer"], row["head"], row["tokens"]), (2, 0, self.prompt))
        self.assertEqual((row["early"], row["late"], row["both"]), (early.sum(), late.sum(), (early & late).sum()))
        self.assertEqual(row["persistence"], (early & late).sum() / late.sum())
        self.assertEqual(row["chance"], early.sum() / self.prompt)
        none = self.results("persistence", "--times", "1000")
        self.assertEqual({(row["late"], row["persistence"]) for row in none}, {(0, None)})

    def test_heads(self):
        rows = self.results("heads", "--rows", "20")
        self.assertEqual(len(rows), 12)
        attention = self.lane(1, 1)[0][0][self.prompt - 20:]
        row = rows[4 + 2]
        self.assertEqual((row["layer"], row["head"], row["rows"]), (1, 2, 20 + self.decode))
        bits = [-(a[a > 0] * np.log2(a[a > 0])).sum() for a in attention]
        seen = np.arange(self.prompt - 20, self.prompt + self.decode) + 1
        local = [a[n - 32:n].sum() for a, n in zip(attention, seen)]
        distance = [(a[:n] * np.arange(n)[::-1]).sum() for a, n in zip(attention, seen)]
        for key, value in (("sink", attention[:, :4].sum(axis=1)), ("local", local), ("entropy", bits),
                           ("entropy_share", bits / np.log2(seen)), ("distance", distance),
                           ("largest", attention.max(axis=1))):
            self.assertAlmostEqual(row[key], np.mean(value), delta=1e-4 * max(1, np.mean(value)), msg=key)

    def test_key_norms(self):
        rows = self.results("key-norms")
        attention, keys = self.lane(0, 1)
        mean = attention[:, :self.prompt, :self.prompt].mean(axis=0).sum(axis=0) / np.arange(self.prompt, 0, -1)
        norm = np.linalg.norm(keys[:self.prompt], axis=1)
        ranks = [values.argsort().argsort() for values in (norm[4:], mean[4:])]
        row = rows[1]
        self.assertAlmostEqual(row["pearson"], np.corrcoef(norm[4:], mean[4:])[0, 1], delta=1e-4)
        self.assertAlmostEqual(row["spearman"], np.corrcoef(*ranks)[0, 1], delta=1e-3)
        self.assertAlmostEqual(row["norm_mean"], norm[4:].mean(), places=5)
        self.assertAlmostEqual(row["norm_spread"], norm[4:].std(), places=5)
        self.assertAlmostEqual(row["sink_norm_ratio"], norm[:4].mean() / norm[4:].mean(), places=5)
        self.assertEqual({row["sink_norm_ratio"] for row in self.results("key-norms", "--skip", "0")}, {None})
        alone = self.results("key-norms", "--skip", self.prompt - 1)[0]
        self.assertEqual((alone["pearson"], alone["spearman"], alone["norm_spread"]), (None, None, 0))
        nothing = self.results("key-norms", "--skip", self.prompt)[0]
        self.assertEqual({nothing[key] for key in list(nothing)[3:]}, {None})

    def test_threads_change_nothing(self):
        for kind in KINDS:
            study = ["analyze", kind, "t.h5", "--quiet", "--format", "csv"]
            self.assertEqual(self.ok(*study, "--threads", "1"), self.ok(*study, "--threads", "2"), kind)

    def test_refusals(self):
        for kind, *more, said in (
                ("ranking-loss", "--rankings", "window", "These do: hash, recency, random"),
                ("ranking-loss", "--rankings", "hash,hash", "asked for twice"),
                ("ranking-loss", "--rankings", "snapkv+pyramid", "has an allocation"),
                ("ranking-loss", "--rankings", "l3_norm", "l2_norm"),
                ("ranking-loss", "--mean", "rows", "one of all_rows, visible"),
                ("ranking-loss", "--bits", "65", "--bits"),
                ("cumulative-loss", "--dropped", "1.5", "--dropped"),
                ("persistence", "--split", "0", "no rows on one side"),
                ("persistence", "--split", "half", "split must be a share from 0 to 1, such as 0.1 or 10% or prompt"),
                ("persistence", "--average", "mean", "one of row, split"),
                ("heads", "--rows", "-1", "--rows"),
                ("key-norms", "--skip", "x", "--skip")):
            self.assertIn(said, self.fails(2, "analyze", kind, "t.h5", "--quiet", *more))


if __name__ == "__main__":
    kvsim_command.main()
