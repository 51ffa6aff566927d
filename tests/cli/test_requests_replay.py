#!/usr/bin/env python3
"""Tests kvsim requests replay: hits against a dictionary's, sums over parts, laws, capacities, and what is refused."""
import csv
import io
import json
import random
from collections import OrderedDict

import kvsim_command
import svg_labels
from kvsim_command import SOURCE, CommandTest

GIB = 1 << 30
CONVERSATION = f"{SOURCE}/traces/sample/requests/mooncake_conversation.jsonl.gz"


def lru_runs(requests, capacity):
    """Leading runs of resident blocks under LRU: prompts stored from their last block to their first."""
    cache, runs = OrderedDict(), []
    for _, _, ids in requests:
        path = [tuple(ids[:i + 1]) for i in range(len(ids))]
        run = 0
        while run < len(path) and path[run] in cache:
            run += 1
        runs.append(run)
        kept = path[:capacity]
        for node in reversed(kept):
            cache[node] = True
            cache.move_to_end(node)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return runs


class Replay(CommandTest):
    def trace(self, requests, name="trace.jsonl"):
        """Mooncake's format: blocks of 512 tokens."""
        lines = [json.dumps({"timestamp": ms, "input_length": prompt, "output_length": 10, "hash_ids": ids})
                 for ms, prompt, ids in requests]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def random_requests(self, count=200):
        draw, requests, fresh = random.Random(7), [], 0
        for i in range(count):
            ids = list(draw.choice(requests)[2][:draw.randint(1, 8)]) if requests and draw.random() < 0.7 else []
            for _ in range(draw.randint(1, 5)):
                fresh += 1
                ids.append(fresh)
            requests.append((50 * i, 512 * len(ids) - draw.randint(0, 511), ids))
        return requests

    def rows(self, name, *arguments):
        text = self.ok("requests", "replay", name, "--quiet", "--format", "csv", *arguments)
        return list(csv.DictReader(io.StringIO(text)))

    def test_three_requests_by_hand(self):
        # Two blocks fit. The first request leaves blocks 1, 2; the second finds both and 3 is left out, since its own
        # blocks do not displace one another; the third displaces 2, the less recent of both, and finds nothing.
        # The fourth finds 1 alone.
        name = self.trace([(0, 1024, [1, 2]), (1, 1500, [1, 2, 3]), (2, 100, [9]), (3, 600, [1, 2])])
        row, half, ceiling, _ = self.rows(name, "--policy", "lru", "--capacity", "1K")
        self.assertEqual((row["hit_tokens"], row["prompt_tokens"]), (str(1024 + 512), str(1024 + 1500 + 100 + 600)))
        self.assertEqual((row["hit_blocks"], row["blocks"], row["wasted_blocks"]), ("3", "8", "0"))
        self.assertEqual((row["untouched"], row["requests"]), ("2", "4"))
        self.assertEqual((half["window"], half["hit_tokens"], half["requests"]), ("last_half", "512", "2"))
        self.assertEqual((ceiling["policy"], ceiling["hit_tokens"]), ("ceiling", str(1024 + 600)))
        # Shares 0, 0, 1024/1500, 512/600: the nearest rank of a half of four is the second.
        self.assertEqual((float(row["hit_p50"]), float(row["hit_p90"])), (0, 512 / 600))

    def test_which_tokens_count(self):
        name = self.trace([(0, 600, [1, 2]), (1, 600, [1, 2]), (2, 1024, [5, 6]), (3, 1024, [5, 6])])
        hits = {found: self.rows(name, "--capacity", "4K", "--policy", "lru", "--found", found)[0]["hit_tokens"]
                for found in ("all", "whole", "vllm")}
        self.assertEqual(hits, {"all": str(600 + 1024), "whole": str(512 + 1024), "vllm": str(512 + 512)})

    def test_tails_take_no_room_where_engines_keep_whole_blocks(self):
        # Two blocks fit. With its tail the second prompt displaces all of the first one, whose whole block the third asks for.
        name = self.trace([(0, 600, [1, 2]), (1, 600, [3, 4]), (2, 600, [1, 5])])
        hits = {found: self.rows(name, "--capacity", "1K", "--policy", "lru", "--found", found)[0]
                for found in ("all", "whole", "vllm")}
        self.assertEqual({found: row["hit_tokens"] for found, row in hits.items()}, {"all": "0", "whole": "512", "vllm": "512"})
        self.assertEqual({found: row["blocks"] for found, row in hits.items()}, {"all": "6", "whole": "3", "vllm": "3"})

    def test_what_is_said_of_opt_and_of_who_sees_ahead(self):
        # One block fits, for two prompts of 1 and two of 512 tokens in turns: opt keeps the block that is needed sooner.
        name = self.trace([(0, 1, [1]), (1, 512, [2]), (2, 1, [1]), (3, 512, [2])])
        self.assertEqual(self.rows(name, "--capacity", "512", "--policy", "opt")[0]["hit_tokens"], "1")
        shown = self.ok("requests", "replay", name, "--capacity", "512", "--policy", "opt,queue_lru(window=3)", "--quiet")
        self.assertIn("opt hits the most blocks, and not always the most tokens", shown)
        self.assertIn("queue_lru is no online policy here: it knows the next 3 requests", shown)
        whole = self.ok("requests", "replay", name, "--capacity", "512", "--policy", "lru,opt", "--found", "whole", "--quiet")
        self.assertNotIn("opt hits", whole)

    def test_lru_as_a_dictionary_has_it(self):
        requests = self.random_requests()
        name = self.trace(requests)
        for capacity in (3, 10, 40, 200):
            runs = lru_runs(requests, capacity)
            row, half = self.rows(name, "--policy", "lru", "--capacity", str(512 * capacity))[:2]
            hits = [min(512 * run, prompt) for run, (_, prompt, _) in zip(runs, requests)]
            self.assertEqual(int(row["hit_blocks"]), sum(runs))
            self.assertEqual(int(row["hit_tokens"]), sum(hits))
            self.assertEqual(int(half["hit_tokens"]), sum(hits[100:]))
            each = self.rows(name, "--policy", "lru", "--capacity", str(512 * capacity), "--each")
            self.assertEqual([int(one["hit_blocks"]) for one in each[:200]], runs)
        self.assertIn("wasted blocks", self.ok("requests", "replay", name, "--policy", "lru", "--capacity", "2048", "--each", "--quiet"))

    def test_laws(self):
        name = self.trace(self.random_requests())
        rows = [row for row in self.rows(name, "--policy", "all", "--capacity", "2K..512K:x2") if row["window"] == "all"]
        ceiling = rows.pop()
        best = {row["capacity_tokens"]: int(row["hit_tokens"]) for row in rows if row["policy"] == "opt"}
        curve = [best[key] for key in sorted(best, key=int)]
        self.assertEqual(curve, sorted(curve))
        for row in rows:
            self.assertLessEqual(int(row["hit_tokens"]), best[row["capacity_tokens"]], row["policy"])
            self.assertLessEqual(int(row["hit_tokens"]), int(ceiling["hit_tokens"]))
            self.assertEqual(row["ceiling_tokens"], ceiling["hit_tokens"])
        self.assertEqual(curve[-1], int(ceiling["hit_tokens"]))
        info = list(csv.DictReader(io.StringIO(self.ok("requests", "info", name, "--format", "csv"))))[0]
        self.assertEqual(info["ceiling_tokens"], ceiling["hit_tokens"])

    def test_threads_never_change_a_row(self):
        name = self.trace(self.random_requests())
        one, two = (self.ok("requests", "replay", name, "--quiet", "--format", "json", "--policy", "all", "--threads", n)
                    for n in "12")
        self.assertEqual(one, two)

    def test_depths_and_turns_add_up(self):
        lines = []
        for i, ids in enumerate([[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9], [1, 2, 3, 4, 5, 6, 7]]):
            parent = -1 if i in (0, 2) else i - 1
            lines.append(json.dumps({"chat_id": i, "parent_chat_id": parent, "timestamp": i, "input_length": 16 * len(ids) - 3,
                                     "output_length": 4, "type": "text" if i < 2 else "search", "turn": 1 + i % 2,
                                     "hash_ids": ids}))
        (self.folder / "b.jsonl").write_text("\n".join(lines) + "\n")
        cache = ("b.jsonl", "--policy", "lru", "--capacity", "96")
        total = self.rows(*cache)[0]
        for by in ("category", "turn", "session", "depth"):
            parts = [row for row in self.rows(*cache, "--by", by) if row["window"] == "all" and row["policy"] != "ceiling"]
            self.assertGreater(len(parts), 1, by)
            for key in ("prompt_tokens", "hit_tokens", "ceiling_tokens", "blocks", "hit_blocks"):
                self.assertEqual(sum(int(row[key]) for row in parts), int(total[key]), (by, key))
        depths = [row["part"] for row in self.rows(*cache, "--by", "depth") if row["window"] == "all"]
        self.assertEqual(depths[:4], ["0", "16", "32", "64"])

    def test_seconds_are_those_of_the_cost_model(self):
        served = ("--model", "llama-3.1-8b", "--machine", "a100-80-sxm")
        name = self.trace([(0, 2000, [1, 2, 3, 4]), (1, 2000, [1, 2, 3, 4])])
        row = self.rows(name, *served, "--policy", "lru", "--capacity", "1GiB")[0]
        estimate = list(csv.DictReader(io.StringIO(self.ok(
            "cost", "estimate", *served, "--prompt-tokens", "2000", "--generate", "2", "--format", "csv"))))[0]
        self.assertAlmostEqual(float(row["prefill_seconds"]) / (2 * float(estimate["ttft_seconds"])), 1, places=9)
        each = self.rows(name, *served, "--policy", "lru", "--capacity", "1GiB", "--each")
        self.assertEqual(float(each[0]["saved_seconds"]), 0)
        # All of the second prompt is there, but its last token, which the first answer token follows from.
        self.assertEqual(each[1]["hit_tokens"], "2000")
        self.assertTrue(0.5 < float(each[1]["saved_seconds"]) / float(each[1]["prefill_seconds"]) < 1)
        self.assertAlmostEqual(float(row["saved_seconds_per_gib"]), float(row["saved_seconds"]), places=9)

    def test_capacities_in_bytes(self):
        name = self.trace(self.random_requests(20))
        # 32 layers, 8 KV heads of 128, keys and values of 16 bits: 128 KiB a token.
        row = self.rows(name, "--model", "llama-3.1-8b", "--policy", "lru", "--capacity", "1GiB")[0]
        self.assertEqual((row["capacity_tokens"], row["capacity_bytes"]), ("8192", str(GIB)))
        row = self.rows(name, "--model", "llama-3.1-8b", "--policy", "lru", "--capacity", "8K")[0]
        self.assertEqual((row["capacity_tokens"], row["capacity_bytes"]), ("8192", str(GIB)))
        halves = [int(self.rows(name, "--model", "llama-3.1-8b", "--policy", "lru", "--capacity", "64GiB", *how)[0]
                      ["capacity_tokens"]) for how in ((), ("--stored", "streaming_llm", "--budget", "50%"),
                                                       ("--stored", "full+scalar(bits=8)"), ("--tensor-parallel", "2"))]
        self.assertAlmostEqual(halves[1] / halves[0], 2, places=2)
        self.assertTrue(1.7 < halves[2] / halves[0] < 2)  # scales take the rest
        self.assertEqual(halves[3], 2 * halves[0])

    def test_whole_nodes(self):
        # Three blocks fit. 1 2 3 is one node; of [1 2 9] nothing of it may stay beside 9 but 1 2, since the node is split where
        # both prompts part and 3 leaves. By blocks it is the same; the third prompt then takes the room of a whole node.
        name = self.trace([(0, 1536, [1, 2, 3]), (1, 1536, [1, 2, 9]), (2, 512, [20]), (3, 1536, [1, 2, 9])])
        hits = {unit: [int(row["hit_blocks"]) for row in self.rows(name, "--policy", "lru", "--capacity", "1536", "--unit", unit,
                                                                   "--each") if row["policy"] == "lru"]
                for unit in ("block", "node")}
        self.assertEqual(hits, {"block": [0, 2, 0, 2], "node": [0, 2, 0, 2]})
        name = self.trace([(0, 1536, [1, 2, 3]), (1, 512, [9]), (2, 1536, [1, 2, 3])])
        hits = {unit: [int(row["hit_blocks"]) for row in self.rows(name, "--policy", "lru", "--capacity", "1536", "--unit", unit,
                                                                   "--each") if row["policy"] == "lru"]
                for unit in ("block", "node")}
        self.assertEqual(hits, {"block": [0, 0, 2], "node": [0, 0, 0]})  # 9 takes the room of 3 alone, or of 1 2 3
        self.assertIn("arc", self.fails(2, "requests", "replay", name, "--policy", "arc", "--unit", "node"))

    def test_a_sample_stands_for_the_trace(self):
        cells = ("--policy", "lru,opt", "--capacity", "4M,16M")
        whole = self.rows(CONVERSATION, *cells)
        for seed in "1", "2":
            sampled = self.rows(CONVERSATION, *cells, "--sample", "0.3", "--seed", seed)
            for ours, real in zip(sampled, whole):
                for key in ("policy", "capacity_tokens", "window", "requests", "prompt_tokens", "ceiling_tokens"):
                    self.assertEqual(ours[key], real[key])
                # Ten samples are off by 0.011, root mean square (traces/requests/README.md): three times as much is rare.
                self.assertAlmostEqual(float(ours["hit_rate"]), float(real["hit_rate"]), delta=0.033)
            self.assertEqual({row["blocks"] for row in sampled if row["policy"] != "ceiling"}, {""})
            self.assertEqual(sampled[-2:], whole[-2:])
        self.assertIn("--each", self.fails(2, "requests", "replay", CONVERSATION, "--sample", "0.3", "--each"))
        self.assertIn("parts", self.fails(2, "requests", "replay", CONVERSATION, "--sample", "0.3", "--by", "depth"))

    def test_residency(self):
        # One block fits: 1 is stored at 0 s, used at 2 s and evicted at 5 s.
        name = self.trace([(0, 512, [1]), (2000, 512, [1]), (5000, 512, [2])])
        row = self.rows(name, "--policy", "lru", "--capacity", "512", "--residency")[0]
        self.assertEqual([float(row[key]) for key in ("lifetime", "idle", "reuse_gap")], [5, 3, 2])

    def test_table_and_json(self):
        name = self.trace(self.random_requests())
        table = self.ok("requests", "replay", name, "--policy", "lru,opt", "--capacity", "8K,64K")
        for text in ("lru", "opt", "8192", "65536", "without limits", "last half"):
            self.assertIn(text, table)
        document = json.loads(self.ok("requests", "replay", name, "--format", "json"))
        self.assertEqual(document["inputs"]["analysis"], "requests replay")
        self.assertIn("hit_rate", [column["key"] for column in document["columns"]])
        table = self.ok("requests", "replay", name, "--by", "depth", "--capacity", "8K")
        self.assertIn("4096", table)

    def test_figures(self):
        name = self.trace(self.random_requests())
        served = ("--model", "llama-3.1-8b", "--machine", "h100-sxm", "--policy", "all", "--quiet")
        self.ok("requests", "replay", name, *served, "--capacity", "8K..256K:x2", "-o", "hits.csv")
        self.ok("requests", "replay", name, *served, "--capacity", "8K,64K", "--by", "depth", "-o", "depth.json")
        for figure, file in ("hits", "hits.csv"), ("hits-parts", "depth.json"):
            for width in "page", "column":
                svg = self.ok("plot", figure, file, "--width", width)
                self.assertEqual(svg_labels.misplaced(svg), [], (figure, width))
        shown = list(csv.DictReader(io.StringIO(self.ok("plot", "hits", "hits.csv", "--format", "csv", "--policy", "opt"))))
        rows = {float(row["capacity_bytes"]) / GIB: row
                for row in csv.DictReader(io.StringIO((self.folder / "hits.csv").read_text()))
                if row["policy"] == "opt" and row["window"] == "all"}
        hits = {float(row["capacity"]): float(row["value"]) for row in shown
                if row["policy"] == "opt" and row["panel"] == "tokens that hit"}
        self.assertEqual(hits, {place: float(row["hit_rate"]) for place, row in rows.items()})
        self.assertEqual({row["policy"] for row in shown}, {"opt", "ceiling"})
        self.assertIn("--by depth", self.fails(2, "plot", "hits-parts", "hits.csv"))
        self.assertIn("lru", self.fails(2, "plot", "hits", "hits.csv", "--policy", "lruu"))

    def test_mistakes(self):
        name = self.trace([(0, 2000, [1, 2, 3, 4])])
        for arguments, words in ((("--policy", "lruu"), "lru"), (("--policy", "snapkv"), "one sequence"),
                                 (("--policy", "lru,lru"), "twice"), (("--capacity", "100"), "no block"),
                                 (("--capacity", "1GiB"), "--model"), (("--capacity", "1K..2K"), "range"),
                                 (("--capacity", "8K..1K:x2"), "before it begins"), (("--by", "deep"), "depth"),
                                 (("--machine", "h100-sxm"), "--model"), (("--by", "category"), "categories"),
                                 (("--model", "llama-3.1-8b", "--stored", "keydiff"), "--budget"),
                                 (("--capacity", "1K..2000K:+1"), "1000")):
            with self.subTest(arguments):
                self.assertIn(words, self.fails(2, "requests", "replay", name, *arguments))
        (self.folder / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
        self.assertIn("azure", self.fails(2, "requests", "replay", "azure.csv"))


if __name__ == "__main__":
    kvsim_command.main()
