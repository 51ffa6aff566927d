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

    def test_requests_that_no_memory_holds_are_refused_and_the_others_served(self):
        long = (150, 1 << 20, 5, list(range(10000, 10000 + (1 << 11))))
        name = self.trace([(0, 1024, 5, [1, 2]), long, (300, 1024, 5, [1, 2])])
        alone = self.trace([(0, 1024, 5, [1, 2]), (300, 1024, 5, [1, 2])], "alone.jsonl")
        (run,), (expected,) = self.runs(name, "--memory", "4GiB"), self.runs(alone, "--memory", "4GiB")
        self.assertEqual((run["requests"], run["refused"], expected["refused"]), ("2", "1", "0"))
        self.assertEqual({**run, "refused": "0"}, expected)
        each = self.runs(name, "--memory", "4GiB", "--each")
        self.assertEqual([row["ttft"] == "" for row in each], [False, True, False])
        table = self.ok("requests", "serve", name, *SERVED, "--memory", "4GiB")
        self.assertIn("1 of 3 requests are longer than the least memory holds", table)
        self.assertIn("refused", table.splitlines()[-5] + table.splitlines()[-4] + table.splitlines()[-3])

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
