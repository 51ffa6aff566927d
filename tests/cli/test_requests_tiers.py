#!/usr/bin/env python3
"""Tests kvsim requests tiers and kvsim cost break-even: prompts against caches in tiers, worked once more in Python from the
seconds that other commands print; what is stored in codes; figures; what is refused."""
import csv
import io
import json
import random
from collections import OrderedDict

import kvsim_command
import svg_labels
from kvsim_command import CommandTest

GIB = 1 << 30
SERVED = ("--model", "llama-3.1-8b", "--machine", "h100-sxm")
TOKEN = 131072  # bytes of llama-3.1-8b in fp16
BLOCK = 512


class Tiers(CommandTest):
    def trace(self, requests, name="trace.jsonl"):
        """Mooncake's format: blocks of 512 tokens."""
        lines = [json.dumps({"timestamp": ms, "input_length": prompt, "output_length": 1, "hash_ids": ids}) for ms, prompt, ids in requests]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def random_requests(self, count=300):
        """Conversations that go on, of which the older are the rarer, behind one of two system prompts."""
        draw, talks, out, fresh = random.Random(3), [], [], 1000
        for i in range(count):
            if not talks or draw.random() < 0.4:
                talks.append([draw.randint(1, 2)])
            talk = talks[-1 - min(int(draw.expovariate(0.15)), len(talks) - 1)]
            for _ in range(draw.randint(1, 6)):
                fresh += 1
                talk.append(fresh)
            out.append((1000 * i, len(talk) * BLOCK - draw.choice((0, 0, 100)), list(talk)))
        return out

    def table(self, file):
        return list(csv.DictReader((self.folder / file).read_text().splitlines()))

    def rows(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.ok("requests", "tiers", *arguments, *SERVED, "--format", "csv", "--quiet"))))

    def replayed(self, name, tokens):
        return list(csv.DictReader(io.StringIO(self.ok("requests", "replay", name, "--policy", "lru", "--capacity", tokens, "--format", "csv",
                                                       "--quiet"))))

    def seconds(self, prompts):
        """Of prefills without a cache, which kvsim cost estimate says too."""
        text = self.ok("cost", "estimate", *SERVED, "--sweep", "prompt-tokens=" + ",".join(map(str, prompts)), "--generate", "1",
                       "--format", "csv")
        return {int(row["prompt"]): float(row["ttft_seconds"]) for row in csv.DictReader(io.StringIO(text))}

    def found(self, requests, capacities):
        """Tokens of every request by LRU caches of so many blocks, each beyond what the one before has."""
        tiers, out = [OrderedDict() for _ in capacities], []
        for _, prompt, ids in requests:
            reach, so_far = [], 0
            for tier, capacity in zip(tiers, capacities):
                run = next((i for i, block in enumerate(ids) if block not in tier), len(ids))
                so_far = max(so_far, min(run * BLOCK, prompt))
                reach.append(so_far)
                for block in reversed(ids):
                    tier.pop(block, None)
                    tier[block] = True
                while len(tier) > capacity:
                    tier.popitem(last=False)
            out.append(reach)
        return out

    def test_tiers_are_those_of_dictionaries(self):
        requests = self.random_requests()
        name = self.trace(requests)
        block_gib = BLOCK * TOKEN / GIB
        sizes = {"device": 40, "host": 120, "ssd": 400}
        row, half = self.rows(name, "--device", f"{sizes['device'] * block_gib}GiB", "--host", f"{sizes['host'] * block_gib}GiB",
                              "--ssd", f"{sizes['ssd'] * BLOCK}", "--ssd-link", "7GB/s,100us")
        self.assertEqual((row["window"], half["window"]), ("all", "last_half"))
        self.assertEqual([int(row[f"{tier}_blocks"]) for tier in sizes], list(sizes.values()))
        for of, rows in (row, slice(0, None)), (half, slice(len(requests) // 2, None)):
            reached = self.found(requests, sizes.values())[rows]
            device = sum(reach[0] for reach in reached)
            host = sum(reach[1] - reach[0] for reach in reached)
            ssd = sum(reach[2] - reach[1] for reach in reached)
            self.assertTrue(device and host and ssd)
            # The largest of LRU caches has what the smaller ones have: one cache alone hits as much.
            alone, = [hits for hits in self.replayed(name, sizes["ssd"] * BLOCK) if hits["policy"] == "lru" and hits["window"] == of["window"]]
            self.assertEqual(int(alone["hit_tokens"]), device + host + ssd)
            self.assertEqual([int(of[key]) for key in ("device_tokens", "host_tokens", "ssd_tokens")], [device, host, ssd])
            prompts = [prompt for _, prompt, _ in requests[rows]]
            self.assertEqual(int(of["prompt_tokens"]), sum(prompts))
            self.assertAlmostEqual(float(of["host_share"]), host / sum(prompts))
            seconds = self.seconds(sorted(set(prompts)))
            self.assertAlmostEqual(float(of["none_seconds"]) / sum(seconds[prompt] for prompt in prompts), 1, places=9)
            # What crosses the host's link is what is loaded of both tiers.
            loaded = int(of["host_loaded_tokens"]), int(of["ssd_loaded_tokens"])
            self.assertEqual(float(of["host_link_bytes"]), sum(loaded) * TOKEN)
            self.assertEqual(float(of["ssd_link_bytes"]), loaded[1] * TOKEN)
            for small, large in (("seconds", "load_all_seconds"), ("seconds", "device_seconds"), ("device_seconds", "none_seconds"),
                                 ("request_p50", "request_p90"), ("request_p90", "request_p99")):
                self.assertLessEqual(float(of[small]), float(of[large]))
            self.assertAlmostEqual(float(of["request_mean"]), float(of["seconds"]) / len(prompts))
            self.assertAlmostEqual(float(of["saved_seconds"]), float(of["none_seconds"]) - float(of["seconds"]))

    def test_a_grid_at_any_number_of_threads(self):
        name = self.trace(self.random_requests(120))
        question = (name, "--device", "4GiB,8GiB", "--host", "none,16GiB..64GiB:x2", "--policy", "lru,fifo", "--ssd", "none",
                    "--host-policy", "slru")
        rows = self.rows(*question, "--threads", "1")
        self.assertEqual(rows, self.rows(*question, "--threads", "2"))
        self.assertEqual(len(rows), 2 * 2 * 4 * 2)
        self.assertEqual({row["device_policy"].split("(")[0] for row in rows}, {"lru", "fifo"})
        self.assertEqual({row["host_policy"].split("(")[0] for row in rows}, {"", "slru"})
        for row in rows:
            if not row["host_policy"]:
                self.assertEqual((row["host_tokens"], row["host_capacity_bytes"], row["host_written_bytes"]), ("0", "", ""))
                self.assertEqual(row["seconds"], row["device_seconds"])

    def test_loads_that_do_not_pay_are_not_made(self):
        name = self.trace(self.random_requests(100))
        question = (name, "--device", "2GiB", "--host", "256GiB")
        slow, = [row for row in self.rows(*question, "--host-link", "1MB/s") if row["window"] == "all"]
        fast, = [row for row in self.rows(*question, "--host-link", "1000TB/s") if row["window"] == "all"]
        self.assertEqual((slow["host_loaded_tokens"], slow["load_all"], slow["load_some"]), ("0", "0", "0"))
        self.assertEqual(slow["seconds"], slow["device_seconds"])
        self.assertEqual(fast["host_loaded_tokens"], fast["host_tokens"])
        self.assertGreater(int(fast["host_tokens"]), 0)
        self.assertEqual(slow["host_tokens"], fast["host_tokens"])

    def test_codes_take_less_room_and_less_time_on_the_link(self):
        name = self.trace(self.random_requests())
        question = (name, "--device", "2.5GiB", "--host", "5GiB")
        plain = self.rows(*question)[0]
        codes = self.rows(*question, "--host-kv", "int8")[0]
        # 8 bits a number and a scale of 16 bits for the 128 of a key or value.
        self.assertEqual(int(codes["host_blocks"]), int(5 * GIB / (BLOCK * TOKEN * (8 + 16 / 128) / 16)))
        self.assertGreater(int(codes["host_tokens"]), int(plain["host_tokens"]))
        self.assertEqual(codes["device_blocks"], plain["device_blocks"])
        coded = self.rows(*question, "--host-kv", "cachegen", "--host-sent", "50%")[0]
        whole = self.rows(*question, "--host-kv", "cachegen")[0]
        self.assertAlmostEqual(int(coded["host_blocks"]) / int(whole["host_blocks"]), 2, delta=0.02)
        settings = json.loads(self.ok("requests", "tiers", *question, *SERVED, "--host-kv", "cachegen", "--host-sent", "50%", "--format",
                                      "json", "--quiet"))["inputs"]
        # Level 2 of 32 layers: log2 of 32 bins for the keys of 10 layers and the values of 2, of 16 for the others, and
        # two scales of 16 bits for the numbers of a token and KV head.
        bits = 1024 * (10 * 5 + 22 * 4 + 2 * 5 + 30 * 4) + 32 * 8 * 2 * 16
        self.assertEqual(8 * settings["host_token_bytes"] / 0.5, bits)
        self.assertEqual(settings["ssd_token_bytes"], settings["host_token_bytes"])

    def test_what_an_entropy_coder_leaves_is_read_from_results(self):
        self.ok("replay", "t.h5", "--policy", "full+cachegen", "--budget", "100%", "--quiet", "-o", "sent.csv")
        sent, = self.table("sent.csv")
        name = self.trace(self.random_requests(20))

        def token_bytes(*more):
            return json.loads(self.ok("requests", "tiers", name, *SERVED, "--host", "24GiB", "--host-kv", "cachegen", *more,
                                      "--format", "json", "--quiet"))["inputs"]["host_token_bytes"]

        share = float(sent["sent_bytes"]) / float(sent["kept_bytes"])
        self.assertAlmostEqual(token_bytes("--host-sent", "sent.csv") / token_bytes(), share)
        message = self.fails(3, "requests", "tiers", name, *SERVED, "--host", "24GiB", "--host-kv", "int8", "--host-sent", "sent.csv")
        self.assertIn("sent_bytes", message)

    def test_break_even(self):
        text = self.ok("cost", "break-even", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm,h100-sxm", "--depth", "1K..64K:x4",
                       "--ssd-link", "2GB/s,100us", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([(row["machine"], row["tier"], row["depth"]) for row in rows],
                         [(machine, tier, str(depth)) for machine in ("a100-80-sxm", "h100-sxm") for tier in ("host", "ssd")
                          for depth in (1024, 4096, 16384, 65536)])
        rate = {("a100-80-sxm", "host"): 25e9, ("h100-sxm", "host"): 52e9, ("a100-80-sxm", "ssd"): 2e9, ("h100-sxm", "ssd"): 2e9}
        latency = {"host": 6e-6, "ssd": 1e-4}
        for row in rows:
            size = int(row["depth"]) * TOKEN
            self.assertEqual(float(row["bytes"]), size)
            self.assertAlmostEqual(float(row["load_seconds"]), size / rate[row["machine"], row["tier"]] + latency[row["tier"]])
            self.assertAlmostEqual(float(row["even_bandwidth"]) / (size / (float(row["recompute_seconds"]) - latency[row["tier"]])), 1)
            self.assertAlmostEqual(float(row["speedup"]), float(row["recompute_seconds"]) / float(row["load_seconds"]))
        # Computing takes longer the deeper a token is; loading does not. The H100 computes faster than 2 GB/s bring what it
        # has computed, up to a depth that lies between those shown.
        computed = [float(row["block_recompute_seconds"]) for row in rows[:4]]
        self.assertEqual(computed, sorted(computed))
        of_ssd = rows[12:]
        self.assertLess(float(of_ssd[0]["speedup"]), 1)
        even = self.ok("cost", "break-even", *SERVED, "--depth", "128K", "--ssd-link", "2GB/s,100us", "--format", "json")
        host, ssd = json.loads(even)["results"]
        self.assertEqual(host["even_depth"], 512)
        self.assertGreater(ssd["even_depth"], 65536)
        self.assertLess(ssd["even_depth"], 131072)
        for depth, faster in ((ssd["even_depth"] - 512, False), (ssd["even_depth"], True)):
            at = json.loads(self.ok("cost", "break-even", *SERVED, "--depth", depth, "--ssd-link", "2GB/s,100us", "--format", "json"))
            self.assertEqual(at["results"][1]["speedup"] >= 1, faster)

    def test_a_long_prompt_over_a_network(self):
        """CacheGen's example: 9,600 tokens of Mistral-7B are 1.26 GB in fp16, 3.36 s at 3 Gbit/s."""
        row, = json.loads(self.ok("cost", "break-even", "--model", "mistral-7b-v0.2", "--machine", "a40", "--depth", "9600", "--host-link",
                                  "375MB/s", "--format", "json"))["results"]
        self.assertEqual(row["bytes"], 1258291200)
        self.assertAlmostEqual(row["load_seconds"], 3.36, delta=0.005)

    def test_tables_for_people(self):
        name = self.trace(self.random_requests(50))
        table = self.ok("requests", "tiers", name, *SERVED, "--host", "8GiB,none", "--quiet")
        for words in ("llama-3.1-8b: 8.03 billion", "52 GB/s, 6 us", "last half", "none", "131072 bytes per token"):
            self.assertIn(words, table)
        table = self.ok("cost", "break-even", *SERVED, "--depth", "1K,2K")
        self.assertIn("no slower to load from 512 tokens on", table)

    def test_figures(self):
        name = self.trace(self.random_requests())
        self.ok("requests", "tiers", name, *SERVED, "--device", "8GiB", "--host", "none,16GiB,32GiB", "--ssd", "128GiB", "--ssd-link", "7GB/s",
                "--policy", "lru,fifo", "--quiet", "-o", "tiers.csv")
        self.ok("cost", "break-even", *SERVED, "--ssd-link", "2GB/s", "-o", "even.json")
        for figure, file in ("tiers", "tiers.csv"), ("break-even", "even.json"):
            for width in "page", "column":
                self.assertEqual(svg_labels.misplaced(self.ok("plot", figure, file, "--width", width)), [], (figure, width))
        shown = list(csv.DictReader(io.StringIO(self.ok("plot", "tiers", "tiers.csv", "--format", "csv"))))
        rows = [row for row in self.table("tiers.csv") if row["window"] == "all"]
        on_host = {bar["plan"]: float(bar["end"]) - float(bar["begin"]) for bar in shown if bar["tier"] == "in host memory"}
        self.assertEqual(len(on_host), 4)
        for row in rows:
            plan = row["device_policy"].split("(")[0] + ", " + (f"host {int(row['host_capacity_bytes']) // GIB} GiB" if row["host_policy"] else "no host")
            self.assertAlmostEqual(on_host.get(plan, 0), float(row["host_share"]))
            self.assertEqual({bar["plan"] for bar in shown} & {plan}, {plan})
        lines = list(csv.DictReader(io.StringIO(self.ok("plot", "break-even", "even.json", "--format", "csv"))))
        self.assertEqual({line["way"] for line in lines}, {"compute", "load from host memory", "load from SSD"})
        self.assertIn("has no column", self.fails(3, "plot", "tiers", "even.json"))
        self.assertIn("lru", self.fails(2, "plot", "tiers", "tiers.csv", "--policy", "lruu"))

    def test_mistakes(self):
        name = self.trace(self.random_requests(10))
        for arguments, words in ((("--host", "1GiB", "--policy", "lruu"), "lru"),
                                 (("--host", "1MiB"), "holds no block of 512 tokens"),
                                 (("--host", "much"), "--host"),
                                 (("--ssd", "1TiB"), "--ssd-link 7GB/s,100us"),
                                 (("--host", "1GiB", "--host-link", "fast"), "25GB/s,6us"),
                                 (("--host", "1GiB", "--host-link", "25GB/s,6"), "800us"),
                                 (("--host", "1GiB", "--host-link", "0GB/s"), "no rate"),
                                 (("--host", "1GiB", "--host-kv", "kivvi"), "kivi"),
                                 (("--host", "1GiB", "--host-kv", "h2o"), "unknown representation"),
                                 (("--host", "1GiB", "--host-kv", "cachegen(level=9)"), "level"),
                                 (("--host", "1GiB", "--host-kv", "int8", "--host-sent", "0%"), "95%"),
                                 (("--host", "1GiB", "--tensor-parallel", "3"), "3")):
            with self.subTest(arguments):
                self.assertIn(words, self.fails(2, "requests", "tiers", name, *SERVED, "--quiet", *arguments))
        self.assertIn("llama-3.1-8b", self.fails(2, "requests", "tiers", name, "--model", "llama-3.1-8", "--machine", "t4"))
        (self.folder / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
        self.assertIn("kvsim requests serve", self.fails(2, "requests", "tiers", "azure.csv", *SERVED, "--quiet"))
        for arguments, words in ((("--depth", "0"), "--depth"), (("--suffix", "0"), "--suffix"), (("--depth", "2K..1K:x2"), "ends before"),
                                 (("--machine", "h100"), "h100-sxm")):
            with self.subTest(arguments):
                self.assertIn(words, self.fails(2, "cost", "break-even", *(SERVED if arguments[0] != "--machine" else SERVED[:2]), *arguments))


if __name__ == "__main__":
    kvsim_command.main()
