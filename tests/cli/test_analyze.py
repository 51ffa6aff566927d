#!/usr/bin/env python3
"""Tests kvsim analyze hash: formats that agree, a correlation computed here, refusals."""
import csv
import io
import json

import h5py
import kvsim_command
import numpy as np
from kvsim_command import CommandTest

KEYS = ["trace", "layer", "head", "bits", "correlation", "correlation_spread", "heads", "undefined", "correlation_noise",
        "correlation_noise_spread", "above_noise"]


class Analyze(CommandTest):
    def document(self, *more):
        return json.loads(self.ok("analyze", "hash", "t.h5", "--quiet", "--format", "json", *more))

    def test_formats_agree(self):
        document = self.document("--seed", "5")
        self.assertEqual(document["inputs"]["seed"], 5)
        results = document["results"]
        self.assertEqual([row["bits"] for row in results], [8, 16, 24, 32, 64])
        for row in results:
            self.assertEqual(list(row), KEYS)
            self.assertEqual((row["heads"], row["undefined"]), (12, 0))
        study = ["analyze", "hash", "t.h5", "--quiet", "--seed", "5", "--format"]
        self.assertEqual([json.loads(line) for line in self.ok(*study, "jsonl").splitlines()], results)
        rows = [{key: text if key == "trace" else float(text) if text else None for key, text in row.items()}
                for row in csv.DictReader(io.StringIO(self.ok(*study, "csv")))]
        self.assertEqual(rows, results)
        self.assertEqual(len(self.ok(*study, "md").splitlines()), 7)
        self.assertIn(f"{results[0]['correlation']:.4f}", self.ok(*study, "table"))

    def test_longer_hashes_correlate_more_with_noise(self):
        noise = [row["correlation_noise"] for row in self.document("--projections", "4")["results"]]
        self.assertEqual(noise, sorted(noise))

    def test_many_projections_approach_the_angle(self):
        """With infinitely many projections, 1 - Hamming / bits is 1 - angle / pi."""
        expected = []
        with h5py.File(self.folder / "t.h5") as f:
            scale = f["model"].attrs["attn_scale"]
            for layer in range(3):
                group = f[f"layers/{layer:04d}"]
                for head in range(4):
                    q, k = group["q"][head, self.prompt - 1].astype(float), group["k"][head // 2, :self.prompt].astype(float)
                    attention = np.exp(scale * (k @ q))
                    cosine = (k @ q) / np.linalg.norm(k, axis=1) / np.linalg.norm(q)
                    expected.append(np.corrcoef(attention / attention.sum(), 1 - np.arccos(cosine) / np.pi)[0, 1])
        row = self.document("--bits", "64", "--projections", "100")["results"][0]
        self.assertAlmostEqual(row["correlation"], np.mean(expected), delta=0.02)
        self.assertAlmostEqual(row["correlation_spread"], np.std(expected), delta=0.02)

    def test_per_layer_and_head(self):
        everything = self.document()["results"]
        for per, scopes in ("layer", 3), ("head", 12):
            rows = self.document("--per", per)["results"]
            self.assertEqual(len(rows), 5 * scopes)
            self.assertEqual({(row["layer"], row["head"]) for row in rows},
                             {(layer, head) for layer in range(3) for head in (range(4) if per == "head" else [None])})
            for whole in everything:
                of_length = [row["correlation"] for row in rows if row["bits"] == whole["bits"]]
                self.assertAlmostEqual(whole["correlation"], np.mean(of_length), places=12)
        self.assertIn("per=lane is not legal: per must be one of all, layer, head", self.fails(2, "analyze", "hash", "t.h5", "--quiet", "--per", "lane"))

    def test_threads_change_nothing(self):
        study = ["analyze", "hash", "t.h5", "t.h5", "--quiet", "--format", "json"]
        self.assertEqual(self.ok(*study, "--threads", "1"), self.ok(*study, "--threads", "2"))

    def test_output_file(self):
        self.ok("analyze", "hash", "t.h5", "--quiet", "-o", "hash.txt")
        self.assertIn("above", (self.folder / "hash.txt").read_text())
        self.assertIn("exists already", self.fails(2, "analyze", "hash", "t.h5", "--quiet", "-o", "hash.txt"))
        self.assertIn("is read by this command", self.fails(2, "analyze", "hash", "t.h5", "--overwrite", "-o", "t.h5"))

    def test_refusals(self):
        for bits in "0", "65", "8,,16", "8,x", "-4", "":
            self.fails(2, "analyze", "hash", "t.h5", "--quiet", "--bits", bits)
        self.fails(2, "analyze", "hash", "t.h5", "--quiet", "--format", "tabel")
        self.fails(2, "analyze")
        self.fails(3, "analyze", "hash", "none.h5", "--quiet")


if __name__ == "__main__":
    kvsim_command.main()
