#!/usr/bin/env python3
"""Tests the program cost_validation, which is built with the tests: published numbers beside computed ones."""
import csv
import functools
import io
import os
import re
import subprocess
import unittest

import kvsim_command
from kvsim_command import KVSIM, SOURCE


def hashevict_gib(slots, heads, per_slot, shared, per_layer):
    """Memory of 256 sequences of Llama-3-8B, as the released code allocates them: keys and values of 128 in bf16, a
    mask byte."""
    return 256 * 32 * (heads * slots * (512 + 1 + per_slot) + slots * shared + per_layer) / 2**30


@functools.cache  # most tests read the same rows
def validation(*form):
    done = subprocess.run([os.path.join(os.path.dirname(KVSIM), "tests", "cost_validation"), *form], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Validate(unittest.TestCase):
    def rows(self):
        return list(csv.DictReader(io.StringIO(validation("csv"))))

    def ours(self, source, start):
        found = [row for row in self.rows() if row["source"] == source and row["quantity"].startswith(start)]
        self.assertEqual(len(found), 1, (source, start, [row["quantity"] for row in found]))
        return float(found[0]["ours"])

    def test_every_row_says_what_its_numbers_say(self):
        for row in self.rows():
            with self.subTest(source=row["source"], quantity=row["quantity"]):
                published, expected = float(row["published"]), row["expected"]
                if expected == "not derivable":
                    self.assertEqual((row["ours"], row["holds"]), ("", "not asserted"))
                    self.assertTrue(row["note"])
                    continue
                ours = float(row["ours"])
                error = (ours - published) / published
                self.assertAlmostEqual(float(row["relative_error"]), error, places=12)
                met = {"exact": abs(ours - published) <= 0.5 * 10.0 ** -int(row["digits"]) * (1 + 1e-6),
                       "within": abs(error) <= float(row["tolerance"] or 0),
                       "missed": abs(error) > float(row["tolerance"] or 0),
                       "at most": ours <= published,
                       "contradicted": abs(error) > 0.05}[expected]
                self.assertEqual(row["holds"], "not asserted" if row["evidence"] == "recalled" else "yes")
                self.assertTrue(met or row["evidence"] == "recalled")

    def test_summary_counts_the_rows(self):
        rows = self.rows()
        lines = validation("md").splitlines()
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        for source in dict.fromkeys(row["source"] for row in rows):
            mine = [row for row in rows if row["source"] == source]
            read = [row for row in mine if row["evidence"] != "recalled"]
            classes = [sum(row["class"] == kind for row in mine)
                       for kind in ("printed", "held out", "own arithmetic", "fitted")]
            others = [sum(row["expected"] == kind for row in read) for kind in ("missed", "contradicted", "not derivable")]
            counts = [len(mine), *classes, *others, len(mine) - len(read)]
            self.assertEqual(sum(counts[1:]), counts[0])
            self.assertEqual(next(cells for cells in table if cells[0] == source)[1:10], [str(count) for count in counts])
        self.assertEqual(next(cells for cells in table if cells[0] == "all")[1], str(len(rows)))
        printed, held_out = (sum(row["class"] == kind for row in rows) for kind in ("printed", "held out"))
        exact = sum(row["class"] == "printed" and row["expected"] == "exact" for row in rows)
        self.assertIn(f"Of the printed ones {exact} are met in every digit", "\n".join(lines))
        readme = " ".join((SOURCE / "sim" / "cost" / "README.md").read_text().split())
        self.assertIn(f"computes {len(rows)} numbers anew and tells apart what they prove: {printed} are printed", readme)
        self.assertIn(f"{exact} of them in every digit; {held_out} were held out", readme)

    def test_classes_follow_from_what_rows_rest_on(self):
        for row in self.rows():
            with self.subTest(source=row["source"], quantity=row["quantity"]):
                claimed = row["expected"] in ("exact", "within", "at most") and row["evidence"] != "recalled"
                self.assertEqual(row["class"] == "none", not claimed)
                if claimed and row["evidence"] == "derived":
                    self.assertEqual(row["class"], "own arithmetic")
                elif claimed:
                    self.assertEqual(row["class"] == "printed", row["rests_on"] == "")

    def test_mean_errors_of_what_was_held_out(self):
        table = validation()
        means = re.findall(r"(?m)^.*: (.*)mean error of the (\d+) held out: ([\d.]+) %, aim (\d+) %$", table)
        self.assertEqual(len(means), 7)  # five series of products, decode and prefill attention
        for what, count, error, aim in means:
            with self.subTest(what):
                self.assertLess(float(error), float(aim))
                self.assertGreater(int(count), 10)

    def test_hashevict_by_its_formula(self):
        for bits in 4, 8, 16, 24, 32, 64:
            ours = self.ours("HashEvict", f"Table 10, GSM8K, 50 %, 88 slots, {bits} bits")
            self.assertAlmostEqual(ours, hashevict_gib(88, 8, 4 + bits, 0, 4 + 128 * bits * 2), places=9)
        self.assertAlmostEqual(self.ours("HashEvict", "Table 2, MedQA, 50 %, 384 slots, L2"),
                               hashevict_gib(384, 8, 4 + 2, 0, 4), places=9)
        self.assertAlmostEqual(self.ours("HashEvict", "Table 2, GSM8K, full cache"), hashevict_gib(405, 8, 0, 4, 4), places=9)

    def test_others_by_their_formulas(self):
        self.assertEqual(self.ours("KVCrush", "KV cache of OPT-175B"), 2 * 128 * 96 * 96 * 8192 * 128 * 2 / 2**30)
        self.assertEqual(self.ours("XKV", "Fig. 1, KV cache at 8K"), 10 * 8192 * 2 * 32 * 32 * 128 * 2 / 2**30)
        for name, per_token in ("Llama-3.1-8B", 131072), ("GLM-4-9B", 81920), ("Yi-9B", 98304):
            for thousands in 60, 122, 244:
                self.assertAlmostEqual(self.ours("ShadowKV", f"infinite batch, {name}, {thousands}K"),
                                       2**41 / (thousands * 1024 * per_token), places=9)
        self.assertAlmostEqual(self.ours("Hydragen", "ratio, 1024 sequences, prefix 2048, suffix 64"),
                               1024 * (2048 + 64) / (2048 + 1024 * 64), places=9)
        self.assertEqual(self.ours("vAttention", "virtual memory"), 2 * 60 * 500 * 200000 * 4 * 128 * 2)
        full = 2 * 32 * 128  # numbers of a token of a layer of llama-2-7b, whose heads share none; 128 of each key
        for chosen, text in (512, "share read, 4 of 32 layers in full, 512 chosen of 32K"), (256, "the same, 256 chosen of 100K"):
            tokens = 32768 if chosen == 512 else 102400
            self.assertAlmostEqual(self.ours("Sparse reads", f"TidalDecode, {text}"), (4 + 28 * chosen / tokens) / 32, places=12)
        self.assertAlmostEqual(self.ours("Sparse reads", "Quest, cache over what a step reads, pages of 16, 64K, 4K chosen"),
                               full * 65536 / (full * 65536 / 16 + full * 4096), places=9)
        self.assertEqual(self.ours("Sparse reads", "RetrievalAttention, Llama-3.1-8B, 128K, on the device"), (128 + 512) * 131072)
        self.assertEqual(self.ours("Sparse reads", "ReKV, 64 frames over the host link, none on the device"), 64 * 196 * 2 * 28 * 4 * 128 * 2)
        self.assertEqual(self.ours("ShadowKV", "over PCIe per step and sequence, 2048 tokens chosen, none cached"), 2048 * 8 * 128 * 2 * 32)
        self.assertAlmostEqual(self.ours("FastSwitch", "bandwidth reached, chunks of 32 KiB"),
                               32768 / (32768 / 32e9 + 10e-6) / 1e9, places=9)

    def test_the_summary_shows_no_exceptions(self):
        table = validation()
        self.assertRegex(table, rf"(?m)^all +{len(self.rows())} ")
        self.assertNotIn("expected", table)


if __name__ == "__main__":
    kvsim_command.main()
