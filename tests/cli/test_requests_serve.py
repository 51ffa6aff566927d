#!/usr/bin/env python3
"""Tests kvsim requests serve: runs as rows, requests as rows, laws between them, and what is refused."""
import csv
import io
import json

import kvsim_command
from kvsim_command import CommandTest

SERVED = ["--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--quiet"]


class Serve(CommandTest):
    def trace(self, requests, name="trace.jsonl"):
        """Mooncake's format: blocks of 512 tokens."""
        lines = [json.dumps({"timestamp": ms, "input_length": prompt, "output_length": generated, "hash_ids": ids})
                 for ms, prompt, generated, ids in requests]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def runs(self, name, *arguments):
        text = self.ok("requests", "serve", name, *SERVED, "--format", "csv", *arguments)
        return list(csv.DictReader(io.StringIO(text)))

    def busy_trace(self):
        """Sixty conversations of which every third begins alike."""
        requests = []
        for i in range(60):
            first = [1, 2] if i % 3 == 0 else [1000 + 10 * i, 1001 + 10 * i]
            requests.append((100 * i, 1024 + 300, 20 + i, [*first, 5000 + i]))
        return self.trace(requests)

    def test_one_request_alone_is_the_estimate(self):
        name = self.trace([(0, 2000, 101, [1, 2, 3, 4])])
        row, = self.runs(name)
        estimate = list(csv.DictReader(io.StringIO(self.ok(
            "cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--prompt-tokens", "2000", "--generate",
            "101", "--format", "csv"))))[0]
        self.assertAlmostEqual(float(row["ttft_p50"]) / float(estimate["ttft_seconds"]), 1, places=9)
        self.assertAlmostEqual(float(row["tpot_p50"]) / float(estimate["tpot_seconds"]), 1, places=5)
        self.assertEqual((row["hit_rate"], row["preemptions"], row["computed_tokens"]), ("0", "0", "2100"))

    def test_rows_of_runs_follow_from_rows_of_requests(self):
        name = self.busy_trace()
        run, = self.runs(name, "--ttft", "1s")
        each = self.runs(name, "--each")
        self.assertEqual(len(each), 60)
        ttft = sorted(float(row["ttft"]) for row in each)
        self.assertEqual(float(run["ttft_p50"]), ttft[29])
        self.assertEqual(float(run["ttft_p99"]), ttft[59])
        self.assertAlmostEqual(float(run["ttft_mean"]), sum(ttft) / 60)
        self.assertEqual(float(run["good_share"]), sum(value <= 1 for value in ttft) / 60)
        hits = sum(int(row["hit_tokens"]) for row in each)
        self.assertGreater(hits, 0)
        self.assertAlmostEqual(float(run["hit_rate"]), hits / (60 * 1324))
        seconds = max(float(row["end"]) for row in each)  # the first one arrives at 0
        self.assertAlmostEqual(float(run["requests_per_second"]), 60 / seconds)

    def test_grid_and_threads(self):
        name = self.busy_trace()
        question = ["--memory", "1GiB,8GiB", "--policy", "none,lru", "--rate", "1,4"]
        rows = self.runs(name, *question, "--threads", "1")
        self.assertEqual([(row["memory_bytes"], row["policy"], row["rate"]) for row in rows],
                         [(str(memory << 30), policy, rate) for memory in (1, 8) for policy in ("", "lru()") for rate in "14"])
        self.assertEqual(rows, self.runs(name, *question, "--threads", "2"))
        for row in rows:
            self.assertLessEqual(float(row["peak"]), 1)
        wide, tight = rows[4], rows[0]
        self.assertLessEqual(float(wide["ttft_mean"]), float(tight["ttft_mean"]))
        self.assertEqual(int(wide["computed_tokens"]), sum(1324 + 20 + i - 1 for i in range(60)))

    def test_allocators_differ_in_what_they_waste(self):
        rows = {row["allocator"]: row for row in self.runs(
            self.busy_trace(), "--memory", "4GiB", "--allocator", "static,paged,page_groups,buddy", "--max-tokens", "4096")}
        self.assertEqual(set(rows), {"static", "paged", "page_groups", "buddy"})
        self.assertGreater(float(rows["static"]["internal"]), float(rows["buddy"]["internal"]))
        self.assertGreater(float(rows["buddy"]["internal"]), float(rows["paged"]["internal"]))
        self.assertEqual(float(rows["static"]["runs"]), 1)

    def test_a_host_keeps_what_the_device_loses(self):
        name = self.busy_trace()
        without, = self.runs(name, "--memory", "1GiB")
        rows = self.runs(name, "--memory", "1GiB", "--host-cache", "64GiB", "--host-policy", "none,fifo,lru")
        self.assertEqual(rows.pop(0), without)
        self.assertEqual([row["host_policy"].split("(")[0] for row in rows], ["fifo", "lru"])
        for row in rows:
            self.assertGreaterEqual(float(row["hit_rate"]), float(without["hit_rate"]))
            self.assertEqual(row["hit_rate"], rows[0]["hit_rate"])  # nothing is ever evicted there
        self.assertIn("lru", self.fails(2, "requests", "serve", name, *SERVED, "--host-cache", "1GiB", "--host-policy", "lruu"))

    def test_policies_of_the_device(self):
        self.ok("requests", "generate", "--requests", "400", "--seed", "3", "--quiet", "-o", "made.jsonl")
        policies = [line.split()[0] for line in self.ok("policy", "list").split("replacements", 1)[1].split("\n\n")[0].splitlines()[1:] if line.strip()]
        policies.remove("opt")
        self.assertGreater(len(policies), 10)
        rows = self.runs("made.jsonl", "--memory", "12GiB", "--rate", "0.1", "--policy", ",".join(["none", *policies]))
        self.assertEqual([row["policy"].split("(")[0] for row in rows], ["", *policies])
        self.assertEqual(rows[0]["hit_rate"], "0")
        self.assertTrue(all(float(row["hit_rate"]) > 0 for row in rows[1:]))
        self.assertGreater(len({row["ttft_mean"] for row in rows}), 3)  # they differ
        table = self.ok("requests", "serve", self.busy_trace(), *SERVED, "--memory", "1GiB", "--policy", "slru(protected=0.1),slru,fifo")
        self.assertIn("slru(protected=0.1)", table)
        self.assertRegex(table, r"(?m)^fifo ")

    def test_a_table_for_people_and_json(self):
        name = self.busy_trace()
        table = self.ok("requests", "serve", name, *SERVED, "--rate", "1,2", "--replicas", "2", "--routing", "random")
        self.assertIn("2, random", table)
        self.assertIn("TTFT", table)
        document = json.loads(self.ok("requests", "serve", name, *SERVED, "--format", "json", "--tpot", "40ms"))
        self.assertEqual(document["results"][0]["requests"], 60)
        self.assertTrue(all(column["description"] for column in document["columns"]))

    def test_requests_that_no_memory_holds_are_refused_skipped_or_cut(self):
        long = (150, 1 << 20, 5, list(range(10000, 10000 + (1 << 11))))
        name = self.trace([(0, 1024, 5, [1, 2]), long, (300, 1024, 5, [1, 2])])
        alone = self.trace([(0, 1024, 5, [1, 2]), (300, 1024, 5, [1, 2])], "alone.jsonl")
        message = self.fails(3, "requests", "serve", name, *SERVED, "--memory", "4GiB")
        for words in ["line 2", "1048580 tokens", "holds 32768", "--over-long skip"]:
            self.assertIn(words, message)
        skip = ["--memory", "4GiB", "--over-long", "skip"]
        (run,), (expected,) = self.runs(name, *skip), self.runs(alone, "--memory", "4GiB")
        self.assertEqual((run["requests"], run["skipped"], expected["skipped"]), ("2", "1", "0"))
        self.assertEqual({**run, "skipped": "0"}, expected)
        each = self.runs(name, *skip, "--each")
        self.assertEqual([row["ttft"] == "" for row in each], [False, True, False])
        table = self.ok("requests", "serve", name, *SERVED, *skip)
        self.assertIn("1 of 3 requests are longer than the least memory holds", table)
        self.assertRegex(table, r"skipped\n")
        cut = ["--memory", "4GiB", "--over-long", "cut"]
        run, = self.runs(name, *cut)
        self.assertEqual((run["requests"], run["skipped"], run["cut"]), ("3", "0", "1"))
        each = self.runs(name, *cut, "--each")
        self.assertEqual([(row["prompt"], row["generated"], row["cut_tokens"]) for row in each],
                         [("1024", "5", "0"), ("32768", "1", str((1 << 20) + 5 - 32769)), ("1024", "5", "0")])
        self.assertIn("ends of their prompts", self.ok("requests", "serve", name, *SERVED, *cut))
        self.assertIn("refuse, skip or cut", self.fails(2, "requests", "serve", name, *SERVED, "--over-long", "drop"))

    def test_windows_and_states_are_held_as_cost_estimate_says(self):
        # 20,000 tokens and ten generated ones: 20,009 are stored.
        name = self.trace([(0, 20000, 10, list(range(40)))])
        for model, memory in [("phi-3-mini-4k", "1GiB"), ("gemma-3-12b", "3GiB"), ("gpt-oss-20b", "1GiB"), ("qwen3-next-80b-a3b", "1GiB")]:
            with self.subTest(model):
                served = ["--model", model, "--machine", "b200", "--memory", memory, "--quiet"]
                row, = csv.DictReader(io.StringIO(self.ok("requests", "serve", name, *served, "--format", "csv")))
                estimate, = csv.DictReader(io.StringIO(self.ok(
                    "cost", "estimate", "--model", model, "--machine", "b200", "--prompt-tokens", "20000", "--generate", "9",
                    "--page", "16", "--format", "csv")))
                self.assertEqual((row["requests"], row["policy"]), ("1", ""))
                held = sum(int(estimate[key]) for key in ("keys_values_bytes", "padding_bytes", "state_bytes"))
                self.assertEqual(round(float(row["peak"]) * int(row["memory_bytes"])), held)
        served = ["--model", "gemma-3-12b", "--machine", "b200", "--memory", "3GiB", "--quiet"]
        self.assertIn("line 1", self.fails(3, "requests", "serve", name, *served, "--policy", "lru"))
        self.assertIn("every block in all layers", self.ok("requests", "serve", name, *served[:4], "--quiet", "--policy", "lru"))
        self.assertIn("No prompts are shared", self.ok("requests", "serve", name, *served))
        for arguments in (["--allocator", "buddy"], ["--allocator", "page_groups"]):
            self.assertIn("use paged or static", self.fails(2, "requests", "serve", name, *served, *arguments))
        self.assertIn("recompute", self.fails(2, "requests", "serve", name, *served, "--preemption", "swap"))
        states = ["--model", "qwen3-next-80b-a3b", "--machine", "b200", "--quiet"]
        self.assertIn("--policy none", self.fails(2, "requests", "serve", name, *states, "--policy", "lru"))

    def test_representations_take_the_bytes_of_cost_estimate(self):
        name = self.trace([(0, 20000, 10, list(range(40)))])
        memory = 8 << 30
        for kind in ("fp8", "nvfp4", "q4_0", "kivi(bits=2)"):
            with self.subTest(kind):
                row, = self.runs(name, "--kv", kind, "--policy", "none", "--memory", "8GiB")
                estimate, = csv.DictReader(io.StringIO(self.ok(
                    "cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--prompt-tokens", "20000", "--generate",
                    "9", "--page", "16", "--policy", f"full+{kind}", "--format", "csv")))
                held = sum(int(estimate[key]) for key in ("keys_values_bytes", "padding_bytes"))
                # Tables of all sequences are there once, beside the blocks.
                self.assertEqual(round(float(row["peak"]) * (memory - int(estimate["shared_table_bytes"]))), held)
        plain, = self.runs(name, "--policy", "none", "--memory", "8GiB")
        fp8, = self.runs(name, "--kv", "fp8", "--policy", "none", "--memory", "8GiB")
        self.assertAlmostEqual(float(fp8["peak"]) / float(plain["peak"]), 0.5, places=2)
        self.assertLess(float(fp8["tpot_p50"]), float(plain["tpot_p50"]))
        # Blocks of prompts are shared in fp8, too: twice as many tokens.
        busy = self.busy_trace()
        shared, = self.runs(busy, "--kv", "fp8", "--memory", "1GiB")
        exact, = self.runs(busy, "--memory", "1GiB")
        self.assertEqual(int(shared["capacity"]), 2 * int(exact["capacity"]))
        self.assertIn("nvfp4", self.fails(2, "requests", "serve", name, *SERVED, "--kv", "nvfp5"))
        self.assertIn("more than a representation", self.fails(2, "requests", "serve", name, *SERVED, "--kv", "kivi(bits=2)+quest"))

    def test_refusals(self):
        name = self.busy_trace()
        for arguments, words in [(["--memory", "64MiB"], ["line 1", "memory holds"]),
                                 (["--allocator", "budy"], ["buddy"]),
                                 (["--allocator", "buddy", "--policy", "lru"], ["shares blocks"]),
                                 (["--routing", "longest", "--replicas", "2"], ["longest_prefix"]),
                                 (["--rate", "0"], ["--rate"]),
                                 (["--preemption", "drop"], ["recompute or swap"]),
                                 (["--policy", "opt"], ["knows the future"]),
                                 (["--policy", "priority(pin=2)"], ["for good"]),
                                 (["--policy", "snapkv"], ["snapkv"]),
                                 (["--policy", "slruu"], ["slru"]),
                                 (["--host-policy", "lru"], ["--host-cache"]),
                                 (["--replicas", "0"], ["--replicas"]),
                                 (["--ttft", "soon"], ["2s"])]:
            with self.subTest(arguments):
                message = self.fails(3 if arguments[0] == "--memory" else 2, "requests", "serve", name, *SERVED, *arguments)
                for word in words:
                    self.assertIn(word, message)


if __name__ == "__main__":
    kvsim_command.main()
