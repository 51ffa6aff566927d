#!/usr/bin/env python3
"""Tests kvsim requests compression: engines as kvsim requests serve runs them, bytes as kvsim cost estimate has them,
answers as kvsim evaluate counted them, and what is refused."""
import csv
import io
import json
import math

import kvsim_command
import svg_labels
from kvsim_command import SOURCE, CommandTest

SERVED = ["--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--quiet"]
SAMPLE = f"{SOURCE}/traces/sample"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


class Compression(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Conversations that every third time begin alike.
        lines = []
        for i in range(60):
            first = [1, 2] if i % 3 == 0 else [1000 + 10 * i, 1001 + 10 * i]
            lines.append(json.dumps({"timestamp": 100 * i, "input_length": 1324, "output_length": 20 + i,
                                     "hash_ids": [*first, 5000 + i]}))
        (cls.folder / "t.jsonl").write_text("\n".join(lines) + "\n")

    def rows(self, *arguments):
        served = SERVED[2:] if "--model" in arguments else SERVED
        return rows_of(self.ok("requests", "compression", "t.jsonl", *served, *([] if "--memory" in arguments else ["--memory", "2GiB"]),
                               "--format", "csv", *arguments))

    def test_without_compression_it_is_serve(self):
        neither, shared = self.rows("--policy", "full+kivi(bits=2)", "--ttft", "1s")[:2]
        served = rows_of(self.ok("requests", "serve", "t.jsonl", *SERVED, "--memory", "2GiB", "--policy", "none,lru",
                                 "--ttft", "1s", "--format", "csv"))
        self.assertEqual((neither["keeping"], shared["keeping"]), ("neither", "shared"))
        for ours, theirs in zip((neither, shared), served):
            for key in ("capacity", "hit_rate", "computed_tokens", "ttft_p50", "ttft_p99", "tpot_mean", "requests_per_second",
                        "goodput", "running", "preemptions"):
                self.assertEqual(ours[key], theirs[key], key)
        self.assertGreater(float(shared["hit_rate"]), 0)

    def test_bytes_are_those_of_the_cost_model(self):
        for policy, budget in ("streaming_llm", "50%"), ("full+scalar(bits=8)", None), ("snapkv+kivi", "25%"):
            how = ["--policy", policy] + (["--budget", budget] if budget else [])
            row = self.rows(*how)[2]
            estimate = rows_of(self.ok("cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm",
                                       "--prompt-tokens", "1324", "--generate", "1", *how, "--format", "csv"))[0]
            # The estimate holds the generated token beside the prompt: 128 KiB as it comes, at most.
            parts = sum(int(estimate[f"{part}_bytes"]) for part in ("keys_values", "padding", "metadata"))
            self.assertLessEqual(parts - 128 * 1024, float(row["token_bytes"]) * 1324)
            self.assertLessEqual((float(row["token_bytes"]) - 1) * 1324, parts)  # a token's bytes are rounded up
            self.assertEqual(int(row["capacity"]), (2 << 30) // int(row["token_bytes"]))

    def test_layers_with_and_without_a_window(self):
        for model in "gemma-3-12b", "phi-3-mini-4k":  # in most layers, in all
            how = ["--model", model, "--memory", "64GiB"]
            neither, _, whole, *_ = self.rows(*how, "--policy", "window", "--budget", "100%")
            # What is not compressed is read as it is without a policy.
            self.assertAlmostEqual(float(whole["tpot_mean"]) / float(neither["tpot_mean"]), 1, places=3)
            half = self.rows(*how, "--policy", "window", "--budget", "50%")[2]
            self.assertLess(float(half["tpot_mean"]), float(whole["tpot_mean"]))
            estimate = rows_of(self.ok("cost", "estimate", "--model", model, "--machine", "a100-80-sxm", "--prompt-tokens", "1324",
                                       "--generate", "1", "--policy", "window", "--budget", "50%", "--format", "csv"))[0]
            parts = sum(int(estimate[f"{part}_bytes"]) for part in ("keys_values", "padding", "metadata"))
            self.assertAlmostEqual(float(half["token_bytes"]) * 1324 / parts, 1, delta=3e-3)  # beside the generated token

    def test_laws(self):
        rows = self.rows("--policy", "streaming_llm", "--policy", "full+kivi(bits=2)", "--budget", "25%,50%", "--memory", "1GiB,4GiB")
        self.assertEqual(len(rows), 2 * (2 + 2 * (2 + 1)))
        for at in range(0, len(rows), 8):
            neither, shared, *compressed = rows[at:at + 8]
            self.assertEqual([row["keeping"] for row in compressed], 3 * ["compressed"] + 3 * ["compressed and shared"])
            for private, both in zip(compressed[:3], compressed[3:]):
                self.assertEqual((private["policy"], private["budget"], private["token_bytes"]),
                                 (both["policy"], both["budget"], both["token_bytes"]))
                self.assertEqual(float(private["hit_rate"]), 0)
                # More tokens in the same memory: as much of each prompt is found as without compression, or more.
                self.assertGreaterEqual(float(both["hit_rate"]), float(shared["hit_rate"]))
                self.assertLess(float(private["token_bytes"]), float(neither["token_bytes"]))
        self.assertEqual([row["memory_bytes"] for row in rows], 8 * [str(1 << 30)] + 8 * [str(4 << 30)])

    def test_answers_are_those_of_evaluate(self):
        self.ok("evaluate", "--model", f"{SAMPLE}/model", "--workload", f"{SAMPLE}/prompts/longbench.jsonl", "--policy", "full",
                "--policy", "keydiff", "--policy", "snapkv", "--budget", "10%,25%", "--cut", "prompt,question", "--mode", "greedy",
                "--quiet", "-o", "answers.csv")
        rows = self.rows("--policy", "keydiff", "--policy", "snapkv", "--policy", "h2o", "--budget", "25%,50%", "--answers",
                         "answers.csv")
        answers = rows_of((self.folder / "answers.csv").read_text())
        cuts = {"neither": "prompt", "shared": "prompt", "compressed": "prompt", "compressed and shared": "question"}
        joined = 0
        for row in rows:
            policy = row["policy"] or "full"
            right = [int(one["right"]) for one in answers
                     if (one["policy"], one["budget"], one["cut"]) == (policy, row["budget"] or "25%", cuts[row["keeping"]])]
            if policy == "h2o" or row["budget"] == "50%":
                self.assertEqual(row["right"], "")
                continue
            joined += 1
            self.assertAlmostEqual(float(row["right"]), sum(right) / len(right))
            self.assertEqual(int(row["items"]), len(right))
        self.assertEqual(joined, 2 + 2 * 2)
        page = self.ok("requests", "compression", "t.jsonl", *SERVED, "--policy", "keydiff", "--budget", "25%", "--answers",
                       "answers.csv", "--format", "md")
        for text in ("# Compression against reuse", "| compressed and shared | keydiff 25% |", "What this rests on"):
            self.assertIn(text, page)
        self.ok("requests", "compression", "t.jsonl", *SERVED, "--policy", "keydiff", "--budget", "25%", "--memory", "1GiB,2GiB",
                "--answers", "answers.csv", "-o", "c.csv")
        for width in "page", "column":
            self.assertEqual(svg_labels.misplaced(self.ok("plot", "compression", "c.csv", "--width", width)), [])
        shown = rows_of(self.ok("plot", "compression", "c.csv", "--format", "csv"))
        hits = {(row["engine"], float(row["x"])): float(row["y"]) for row in shown if row["panel"] == "tokens that hit"}
        for row in rows_of((self.folder / "c.csv").read_text()):
            name = row["keeping"] if not row["policy"] else "keydiff 25%" + (", shared" if "shared" in row["keeping"] else "")
            self.assertTrue(math.isclose(hits[name, int(row["memory_bytes"]) / 2**30], float(row["hit_rate"])))

    def test_threads_never_change_a_row(self):
        how = ("--policy", "keydiff", "--policy", "full+kivi", "--budget", "25%", "--rate", "1,4")
        self.assertEqual(self.rows(*how, "--threads", "1"), self.rows(*how, "--threads", "2"))

    def test_mistakes(self):
        (self.folder / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
        self.assertIn("azure", self.fails(2, "requests", "compression", "azure.csv", *SERVED, "--policy", "full+kivi"))
        self.ok("requests", "compression", "t.jsonl", *SERVED, "--policy", "full+kivi", "-o", "rows.csv")
        for status, arguments, words in ((2, ("--policy", "keydiff"), "--budget"), (2, ("--policy", "lru"), "lru"),
                                         (2, ("--policy", "keydif", "--budget", "25%"), "keydiff"),
                                         (2, ("--policy", "optimal", "--budget", "25%"), "future"),
                                         (3, ("--policy", "full+kivi", "--answers", "rows.csv"), "kvsim evaluate"),
                                         (2, ("--policy", "full+kivi", "--rate", "0"), "zero"),
                                         (2, (), "--policy")):
            with self.subTest(arguments):
                self.assertIn(words, self.fails(status, "requests", "compression", "t.jsonl", *SERVED, *arguments))


if __name__ == "__main__":
    kvsim_command.main()
