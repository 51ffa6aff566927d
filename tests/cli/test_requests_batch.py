#!/usr/bin/env python3
"""Tests kvsim requests batch: rows counted anew, laws between methods, and what is refused."""
import csv
import io
import json

import kvsim_command
from kvsim_command import CommandTest

SERVED = ["--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--quiet"]
KV_BYTES = 131072  # of a token of llama-3.1-8b


class Batch(CommandTest):
    def trace(self, requests, name="trace.jsonl"):
        """Mooncake's format: blocks of 512 tokens."""
        lines = [json.dumps({"timestamp": ms, "input_length": prompt, "output_length": generated, "hash_ids": ids})
                 for ms, prompt, generated, ids in requests]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def alike(self, n=20):
        """Prompts of three whole blocks; the first two are those of every fourth other, of which it makes five groups."""
        return [(0, 3 * 512, 10 + i, [10 * (i % 4), 10 * (i % 4) + 1, 1000 + i]) for i in range(n)]

    def rows(self, name, *arguments):
        served = SERVED[2:] if "--model" in arguments else SERVED
        text = self.ok("requests", "batch", name, *served, "--format", "csv", *arguments)
        return {(row["method"], int(row["batch"])): row for row in csv.DictReader(io.StringIO(text))}

    def test_rows_and_reads_counted_anew(self):
        requests = [(0, 512 * (1 + i % 5) + i, 1 + (7 * i) % 40, [9, *range(100 * i + 1, 100 * i + 2 + i % 5)][:2 + i % 5])
                    for i in range(24)]
        requests = [(ms, prompt, generated, ids[:-(-prompt // 512)]) for ms, prompt, generated, ids in requests]
        rows = self.rows(self.trace(requests), "--batch", "4,24")
        self.assertEqual(len(rows), 12)
        for size in 4, 24:
            batches = [requests[i:i + size] for i in range(0, 24, size)]
            padded = sum(len(batch) * max(prompt for _, prompt, _, _ in batch) for batch in batches)
            prompts = sum(prompt for _, prompt, _, _ in requests)
            row = rows["padded", size]
            self.assertEqual((int(row["computed_tokens"]), int(row["padding_tokens"])), (padded, padded - prompts))
            self.assertEqual(float(row["padding"]), (padded - prompts) / padded)
            self.assertEqual(int(rows["unpadded", size]["computed_tokens"]), prompts)
            steps = sum(max(generated for _, _, generated, _ in batch) - 1 for batch in batches)
            read = sum(prompt + step for _, prompt, generated, _ in requests for step in range(1, generated))
            # The first block is all requests': as long as more than one runs it is read once.
            saved = sum(512 * (running - 1) for batch in batches for step in range(1, 40)
                        if (running := sum(generated > step for _, _, generated, _ in batch)) > 1)
            for method in "padded", "packed", "unpadded", "cached":
                row = rows[method, size]
                self.assertEqual((int(row["steps"]), int(row["read_tokens"])), (steps, read))
                self.assertEqual(int(row["shared_read_tokens"]), read - saved)
                self.assertAlmostEqual(float(row["step_read_bytes"]) / (read * KV_BYTES / steps), 1)
        # Steps that read the same in larger batches take less time.
        self.assertLess(float(rows["unpadded", 24]["step_seconds"]), float(rows["unpadded", 4]["step_seconds"]))

    def test_one_request_alone_is_the_estimate(self):
        row = self.rows(self.trace([(0, 2000, 101, [1, 2, 3, 4])]), "--method", "unpadded")["unpadded", 64]
        estimate = list(csv.DictReader(io.StringIO(self.ok(
            "cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--prompt-tokens", "2000", "--generate",
            "101", "--format", "csv"))))[0]
        self.assertAlmostEqual(float(row["prompt_seconds"]) / float(estimate["ttft_seconds"]), 1, places=9)
        self.assertAlmostEqual(float(row["step_seconds"]) / 100 / float(estimate["tpot_seconds"]), 1, places=5)
        self.assertEqual(row["shared_step_seconds"], row["step_seconds"])

    def test_groups_find_what_a_small_cache_loses(self):
        name = self.trace(self.alike())
        rows = self.rows(name, "--memory", "0.5GiB")  # eight blocks: three others store nine between two of a group
        found = {method: int(row["found_tokens"]) for (method, _), row in rows.items()}
        self.assertEqual(found["grouped"], (20 - 4) * 2 * 512)
        self.assertLess(found["cached"], found["grouped"])
        self.assertEqual([found[method] for method in ("padded", "sorted", "packed", "unpadded")], [0] * 4)
        # With room for all the cache finds as much.
        self.assertEqual(int(self.rows(name)["cached", 64]["found_tokens"]), found["grouped"])
        self.assertLess(float(rows["grouped", 64]["prompt_seconds"]), float(rows["unpadded", 64]["prompt_seconds"]))

    def test_threads_change_nothing(self):
        name = self.trace(self.alike())
        one, two = (self.ok("requests", "batch", name, *SERVED, "--batch", "2,5", "--format", "json", "--threads", n) for n in (1, 2))
        self.assertEqual(one, two)
        self.assertTrue(all(column["description"] or column["key"] in ("requests", "batches") for column in json.loads(one)["columns"]))

    def test_a_trace_without_blocks_has_rows_of_lengths(self):
        (self.folder / "lengths.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,5\n0,70,5\n0,30,5\n")
        text = self.ok("requests", "batch", "lengths.csv", *SERVED)
        self.assertNotIn("cached", text)
        self.assertNotIn("shared", text)
        rows = self.rows("lengths.csv")
        self.assertEqual([method for method, _ in rows], ["padded", "sorted", "packed", "unpadded"])
        self.assertEqual(int(rows["packed", 64]["computed_tokens"]), 200)
        self.assertEqual(rows["packed", 64]["shared_seconds"], "")
        self.assertIn("share", self.fails(2, "requests", "batch", "lengths.csv", *SERVED, "--method", "grouped"))

    def test_a_window_has_no_shared_reads(self):
        text = self.ok("requests", "batch", self.trace(self.alike(2)), "--model", "phi-3-mini-4k", "--machine", "a100-80-sxm", "--quiet")
        self.assertNotIn("shared", text)

    def test_layers_with_and_without_a_window(self):
        model = ["--model", "gemma-3-12b", "--machine", "a100-80-sxm"]
        row = self.rows(self.trace([(0, 3000, 21, list(range(6)))]), *model[:2], "--method", "unpadded")["unpadded", 64]
        every, window = sum(3000 + step for step in range(1, 21)), 20 * 1024
        read = (8 * every + 40 * window) // 48  # of 48 layers every sixth sees everything
        self.assertEqual(int(row["read_tokens"]), read)
        self.assertAlmostEqual(float(row["step_read_bytes"]), read * 48 * 2 * 8 * 256 * 2 / 20, delta=1)
        estimate = list(csv.DictReader(io.StringIO(self.ok(
            "cost", "estimate", *model, "--prompt-tokens", "3000", "--generate", "21", "--format", "csv"))))[0]
        self.assertAlmostEqual(float(row["step_seconds"]) / 20 / float(estimate["tpot_seconds"]), 1, places=5)
        self.assertIn("state", self.fails(2, "requests", "batch", "trace.jsonl", *model[2:], "--model", "nemotron-3-nano-30b-a3b"))

    def test_refusals(self):
        name = self.trace(self.alike())
        for code, arguments, words in [(2, ["--method", "pack"], ["packed"]),
                                       (2, ["--method", "padded,"], ["unknown method"]),
                                       (2, ["--batch", "0"], ["--batch"]),
                                       (2, ["--batch", "4,x"], ["--batch"]),
                                       (2, ["--memory", "lots"], ["--memory"]),
                                       (3, ["--memory", "64MiB"], ["line 1", "memory holds 512"])]:
            with self.subTest(arguments):
                message = self.fails(code, "requests", "batch", name, *SERVED, *arguments)
                for word in words:
                    self.assertIn(word, message)


if __name__ == "__main__":
    kvsim_command.main()
