#!/usr/bin/env python3
"""Tests kvsim cost: bytes and seconds recomputed here, limits that are kept, requests that are refused."""
import csv
import io
import itertools
import json
import math

import kvsim_command
from kvsim_command import SOURCE, CommandTest

GiB = 2**30
LLAMA = {"layers": 32, "hidden": 4096, "ffn": 14336, "query_heads": 32, "kv_heads": 8, "dim": 128, "vocab": 128256}
LLAMA_ON_A100 = ["--model", "llama-3-8b", "--machine", "a100-80-sxm"]
TOKEN = 4 * LLAMA["layers"] * LLAMA["kv_heads"] * LLAMA["dim"]  # keys and values of a token, two bytes each


def parameters(m):
    """Number of parameters of a Llama: attention, gated MLP and two norms per block; embedding, head and the last
    norm."""
    attention = m["hidden"] * m["dim"] * (2 * m["query_heads"] + 2 * m["kv_heads"])
    block = attention + 3 * m["hidden"] * m["ffn"] + 2 * m["hidden"]
    return m["layers"] * block + 2 * m["vocab"] * m["hidden"] + m["hidden"]


class CostTest(CommandTest):
    def cost(self, *arguments, command="estimate"):
        """Rows of `kvsim cost estimate` or `fit`, numbers as numbers."""
        return self.document(*arguments, command=command)["results"]

    def document(self, *arguments, command="estimate"):
        return json.loads(self.ok("cost", command, *arguments, "--format", "json", "--quiet"))

    def one(self, *arguments):
        rows = self.cost(*LLAMA_ON_A100, *arguments)
        self.assertEqual(len(rows), 1, rows)
        return rows[0]


class Bytes(CostTest):
    def test_a_full_cache(self):
        row = self.one("--prompt-tokens", "8K", "--batch", "4")
        self.assertEqual(row["prompt"], 8192)
        self.assertEqual(row["weights_bytes"], 2 * parameters(LLAMA))
        self.assertEqual(row["keys_values_bytes"], 4 * (8192 + 256) * TOKEN)
        self.assertEqual(row["budget"], None)
        self.assertEqual(row["cache_bytes"], row["keys_values_bytes"] + row["padding_bytes"] + row["metadata_bytes"] +
                         row["page_table_bytes"] + row["shared_table_bytes"] + row["state_bytes"])
        self.assertEqual(row["end_bytes"], row["cache_bytes"] + row["weights_bytes"] + row["activation_bytes"] +
                         row["scratch_bytes"] + row["reserved_bytes"])
        self.assertEqual(row["peak_bytes"], max(row["end_bytes"], row["prefill_bytes"]))
        self.assertEqual(row["fits"], "yes")

    def test_prompt_only_compression_keeps_what_is_generated(self):
        row = self.one("--prompt-tokens", "32K", "--policy", "snapkv", "--budget", "10%")
        self.assertEqual(row["budget_tokens"], 3276)
        self.assertEqual(row["keys_values_bytes"], (3276 + 256) * TOKEN)
        # While the last layer is compressed, its prompt is still in memory.
        layer = TOKEN // LLAMA["layers"]
        self.assertEqual(row["prefill_cache_bytes"], layer * (31 * 3276 + 32768))

    def test_decoding_within_the_budget(self):
        row = self.one("--prompt-tokens", "32K", "--policy", "h2o", "--budget", "2K")
        self.assertEqual(row["keys_values_bytes"], 2048 * TOKEN)

    def test_expanded_heads_and_bits(self):
        whole = self.one("--prompt-tokens", "4K")["keys_values_bytes"]
        self.assertEqual(self.one("--prompt-tokens", "4K", "--stored-kv-heads", "expanded")["keys_values_bytes"], 4 * whole)
        self.assertEqual(self.one("--prompt-tokens", "4K", "--kv", "fp32")["keys_values_bytes"], 2 * whole)
        self.assertEqual(self.one("--prompt-tokens", "4K", "--policy", "full+fp8")["keys_values_bytes"], whole // 2)
        # FlexGen's: 4 bits per element, and a 16-bit scale and minimum per 64 elements.
        self.assertEqual(self.one("--prompt-tokens", "4K", "--policy", "full+scalar(bits=4,group=64)")["keys_values_bytes"],
                         whole * 4.5 / 16)
        # Matrices of the blocks have 8 bits; embedding, head and norms keep 16.
        rest = 2 * LLAMA["vocab"] * LLAMA["hidden"] + (2 * LLAMA["layers"] + 1) * LLAMA["hidden"]
        self.assertEqual(self.one("--prompt-tokens", "4K", "--weight-bits", "8")["weights_bytes"], parameters(LLAMA) + rest)

    def test_pages(self):
        row = self.one("--prompt-tokens", "1000", "--generate", "1", "--page", "16")
        self.assertEqual(row["keys_values_bytes"], 1001 * TOKEN)
        self.assertEqual(row["padding_bytes"], (63 * 16 - 1001) * TOKEN)
        self.assertGreater(row["page_table_bytes"], 0)

    def test_holes(self):
        options = ["--policy", "snapkv", "--budget", "1024", "--prompt-tokens", "4096", "--generate", "1", "--head-pages"]
        holes = self.one(*options, "--page", "4", "--holes")
        # 1025 of 4097 tokens remain; a page of four is free when all its tokens are evicted, a share of 0.75^4 of 1025
        # pages.
        pages = math.ceil(1025 * (1 - (1 - 1025 / 4097) ** 4))
        self.assertEqual(holes["padding_bytes"], (pages * 4 - 1025) * TOKEN)
        self.assertEqual(self.one(*options, "--page", "4")["padding_bytes"], (1028 - 1025) * TOKEN)
        self.assertEqual(self.one(*options, "--page", "1", "--holes")["padding_bytes"], 0)

    def test_preallocated(self):
        options = ["--prompt-tokens", "1000", "--generate", "24"]
        early, late = self.one(*options, "--preallocated"), self.one(*options)
        self.assertEqual(early["prefill_cache_bytes"], 1024 * TOKEN)
        self.assertEqual(late["prefill_cache_bytes"], 1000 * TOKEN)
        self.assertEqual(early["cache_bytes"], late["cache_bytes"])

    def test_tensor_parallelism(self):
        half = self.one("--prompt-tokens", "8K", "--tp", "2")
        self.assertEqual(half["keys_values_bytes"], (8192 + 256) * TOKEN // 2)
        # From 8 devices on each has one KV head; with more devices the heads are replicated.
        self.assertEqual(self.one("--prompt-tokens", "8K", "--tp", "16")["keys_values_bytes"], (8192 + 256) * TOKEN // 8)

    def test_the_largest_batch_is_the_largest(self):
        for policy in ["--policy", "full"], ["--policy", "snapkv", "--budget", "25%"]:
            batch = self.one("--prompt-tokens", "8K", *policy)["largest_batch"]
            self.assertEqual(self.one("--prompt-tokens", "8K", *policy, "--batch", batch)["fits"], "yes")
            self.assertEqual(self.one("--prompt-tokens", "8K", *policy, "--batch", batch + 1)["fits"], "no")

    def test_budgets_in_bytes_are_of_a_sequence(self):
        row = self.one("--prompt-tokens", "8K", "--policy", "h2o", "--budget", "64MiB")
        self.assertEqual(row["budget_tokens"], 64 * 2**20 // TOKEN)
        eighths = self.one("--prompt-tokens", "8K", "--policy", "h2o+fp8", "--budget", "64MiB")
        self.assertEqual(eighths["budget_tokens"], 2 * row["budget_tokens"])

    def test_units_are_written_out_and_never_mixed(self):
        table = self.ok("cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K")
        row = self.one("--prompt-tokens", "8K")
        line = next(line for line in table.splitlines() if line.startswith("full"))
        self.assertIn(f"{row['end_bytes'] / GiB:.3f}", line)
        self.assertIn(f"{row['end_bytes'] / 1e9:.3f}", line)
        self.assertIn("GiB = 2^30 bytes, GB = 10^9 bytes", table)


class Representations(CostTest):
    def test_encodings_are_representations_now(self):
        for name, part in (("fp8", "fp8"), ("flexgen4", "scalar(bits=4,group=64)"), ("kivi2", "kivi(bits=2)"), ("kivi4", "kivi(bits=4)"),
                           ("int8", "int8"), ("nvfp4", "nvfp4")):
            self.one("--prompt-tokens", "8K", "--policy", f"full+{part}")
            message = self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--kv", name)
            self.assertIn(f"--policy 'full+{part}'", message)

    def test_windows_are_exact(self):
        """Kivi's bytes by its authors' formula: keys wait for 128, the latest 128 values are exact."""
        for prompt, generate in (8192, 256), (8192, 200), (100, 27), (100, 28):
            n = prompt + generate
            waiting, window = n % 128, min(n, 128)
            lane = 128 * ((n - waiting) * (2 / 8 + 4 / 32) + 2 * waiting + (n - window) * (2 / 8 + 4 / 32) + 2 * window)
            row = self.one("--prompt-tokens", prompt, "--generate", generate, "--policy", "full+kivi(bits=2)")
            self.assertEqual(row["keys_values_bytes"], 32 * 8 * lane)

    def test_codes_are_read_and_unpacked(self):
        full, fp8, kivi = (self.one("--prompt-tokens", "32K", "--batch", 8, "--policy", policy)
                           for policy in ("full", "full+fp8", "full+kivi(bits=2)"))
        self.assertLess(fp8["step_attention_seconds"], full["step_attention_seconds"])
        self.assertGreater(fp8["step_attention_seconds"], full["step_attention_seconds"] / 2)
        self.assertEqual(full["step_policy_seconds"], 0)
        # Kivi codes in kernels of its own, fp8 in the one that appends.
        self.assertGreater(kivi["step_policy_seconds"], fp8["step_policy_seconds"])
        self.assertGreater(kivi["largest_batch"], fp8["largest_batch"])

    def test_merging_is_paid_where_tokens_leave(self):
        h2o, merged, fixed, kept = (self.one("--prompt-tokens", "8K", "--policy", policy, "--budget", "25%")
                                    for policy in ("h2o", "h2o+d2o_merge", "snapkv", "snapkv+d2o_merge"))
        self.assertEqual(merged["keys_values_bytes"], h2o["keys_values_bytes"])
        self.assertGreater(merged["step_policy_seconds"], h2o["step_policy_seconds"])
        self.assertGreater(merged["ttft_seconds"], h2o["ttft_seconds"])
        self.assertEqual(kept["step_policy_seconds"], fixed["step_policy_seconds"])
        self.assertGreater(kept["ttft_seconds"], fixed["ttft_seconds"])

    def test_what_the_heads_do_not_suit(self):
        message = self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--policy", "full+scalar(group=96)")
        self.assertIn("do not divide", message)
        rows = self.cost(*LLAMA_ON_A100, "--prompt-tokens", "8K", "--policy", "full+scalar(group=96)", "--policy", "full+fp8")
        self.assertEqual([row["keys_values_bytes"] is None for row in rows], [True, False])


class Seconds(CostTest):
    def test_passes_are_sums(self):
        row = self.one("--prompt-tokens", "8K", "--policy", "h2o", "--budget", "1K")
        ops = "linear", "attention", "elementwise", "head", "policy", "communication", "host"
        self.assertAlmostEqual(sum(row[f"prefill_{op}_seconds"] for op in ops), row["ttft_seconds"], delta=1e-9)
        self.assertAlmostEqual(sum(row[f"step_{op}_seconds"] for op in ops), row["tpot_seconds"], delta=1e-9)
        self.assertAlmostEqual(row["ttft_seconds"] + 255 * row["tpot_seconds"], row["request_seconds"], delta=1e-6)
        self.assertAlmostEqual(256 / row["request_seconds"], row["tokens_per_second"], delta=1e-6)

    def test_a_step_reads_the_weights(self):
        row = self.one("--prompt-tokens", "8K")
        matrices = parameters(LLAMA) - 2 * LLAMA["vocab"] * LLAMA["hidden"]
        seconds = 2 * matrices / (0.79 * 2039e9)  # at the bandwidth that streaming reaches
        self.assertEqual(row["step_linear_bound"], "memory")
        self.assertLess(seconds, row["step_linear_seconds"])
        self.assertLess(row["step_linear_seconds"], 1.15 * seconds)

    def test_a_prefill_multiplies(self):
        row = self.one("--prompt-tokens", "8K")
        matrices = parameters(LLAMA) - 2 * LLAMA["vocab"] * LLAMA["hidden"]
        seconds = 2 * 8192 * matrices / (0.71 * 312e12)
        self.assertEqual(row["prefill_linear_bound"], "compute")
        self.assertLess(seconds, row["prefill_linear_seconds"])
        self.assertLess(row["prefill_linear_seconds"], 1.1 * seconds)

    def test_fewer_tokens_are_read_faster(self):
        rows = self.cost(*LLAMA_ON_A100, "--policy", "full", "--policy", "snapkv", "--sweep", "budget=1K,4K,16K",
                         "--prompt-tokens", "32K")
        steps = {row["budget_tokens"]: row["step_attention_seconds"] for row in rows}
        self.assertEqual(sorted(steps), [1024, 4096, 16384, 32768 + 256])
        self.assertEqual(sorted(steps.values()), [steps[tokens] for tokens in sorted(steps)])

    def test_options_cost_what_they_say(self):
        plain = self.one("--prompt-tokens", "4K")
        self.assertGreater(self.one("--prompt-tokens", "4K", "--attention", "eager")["prefill_attention_seconds"],
                           plain["prefill_attention_seconds"])
        self.assertGreater(self.one("--prompt-tokens", "4K", "--cache-traffic", "3")["tpot_seconds"], plain["tpot_seconds"])
        self.assertAlmostEqual(self.one("--prompt-tokens", "4K", "--host-floor", "40")["tpot_seconds"], 0.040)
        self.assertGreater(self.one("--prompt-tokens", "4K", "--chunk", "128")["ttft_seconds"], plain["ttft_seconds"])
        self.assertGreater(self.one("--prompt-tokens", "4K", "--tp", "2")["step_communication_seconds"], 0)
        h2o = ["--prompt-tokens", "4K", "--policy", "h2o", "--budget", "1K"]
        self.assertNotEqual(self.one(*h2o)["prefill_policy_seconds"],
                            self.one(*h2o, "--rows", "recomputed")["prefill_policy_seconds"])
        xkv = ["--prompt-tokens", "4K", "--policy", "xkv", "--budget", "1K"]
        self.assertGreater(self.one(*xkv, "--row-share", "1")["prefill_policy_seconds"],
                           5 * self.one(*xkv)["prefill_policy_seconds"])


class Tables(CostTest):
    asked = [*LLAMA_ON_A100, "--policy", "full", "--policy", "snapkv"]

    def test_formats_agree(self):
        arguments = [*self.asked, "--sweep", "prompt-tokens=8K,32K", "batch=1,2", "budget=10%,1024"]
        rows = self.cost(*arguments)
        self.assertEqual(len(rows), 2 * 2 * (1 + 2))  # the full cache runs once, for all budgets
        text = self.ok("cost", "estimate", *arguments, "--format", "csv", "--quiet")
        for row, fields in itertools.zip_longest(rows, csv.DictReader(io.StringIO(text))):
            for key, value in row.items():
                if isinstance(value, (int, float)):
                    self.assertEqual(float(fields[key]), value, key)
                else:
                    self.assertEqual(fields[key], value or "", key)
        lines = self.ok("cost", "estimate", *arguments, "--format", "jsonl", "--quiet").splitlines()
        self.assertEqual([json.loads(line) for line in lines], rows)
        self.assertEqual(len(self.ok("cost", "estimate", *arguments, "--format", "md", "--quiet").splitlines()), 2 + len(rows))
        self.ok("cost", "estimate", *arguments, "--format", "csv", "-o", "costs.csv")
        self.assertEqual((self.folder / "costs.csv").read_text(), text)
        self.assertIn("costs.csv", self.fails(2, "cost", "estimate", *arguments, "-o", "costs.csv"))

    def test_every_column_is_described(self):
        columns = self.document(*self.asked, "--prompt-tokens", "1K", "--budget", "100")["columns"]
        self.assertTrue(all(column["description"] for column in columns))
        self.assertTrue(all(column["unit"] == "bytes" for column in columns if column["key"].endswith("_bytes")))
        self.assertTrue(all(column["unit"] == "s" for column in columns if column["key"].endswith("_seconds")))

    def test_a_point_of_a_sweep_is_the_point(self):
        rows = self.cost(*self.asked, "--sweep", "prompt-tokens=1K..8K:x2", "batch=1..5:+2", "generate=16,32", "budget=10%..30%:+10%")
        self.assertEqual(len(rows), 4 * 3 * 2 * (1 + 3))
        self.assertEqual(sorted({row["prompt"] for row in rows}), [1024, 2048, 4096, 8192])
        self.assertEqual(sorted({row["batch"] for row in rows}), [1, 3, 5])
        self.assertEqual({row["budget"] for row in rows}, {None, "10%", "20%", "30%"})
        alone = self.cost(*self.asked, "--prompt-tokens", "2K", "--batch", "3", "--generate", "32", "--budget", "20%")
        for row in alone:
            self.assertIn(row, rows)

    def test_threads_change_nothing(self):
        arguments = [*self.asked, "--sweep", "prompt-tokens=1K..16K:+1K", "budget=5%..50%:+5%", "--format", "csv", "--quiet"]
        self.assertEqual(self.ok("cost", "estimate", *arguments, "--threads", 1), self.ok("cost", "estimate", *arguments, "--threads", 7))

    def test_points_that_cannot_be_are_left_out_and_told(self):
        done = self.kvsim("cost", "estimate", *self.asked, "--sweep", "prompt-tokens=1K,8K", "budget=4K", "--format", "csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([row["peak_bytes"] == "" for row in rows], [False, True, False, False])
        self.assertIn("above the context", done.stderr)

    def test_the_table_fits_a_terminal(self):
        table = self.ok("cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "32K", "--budget", "10%",
                        *itertools.chain(*(["--policy", p] for p in ("full", "snapkv", "xkv", "kvcrush", "hashevict"))))
        self.assertLessEqual(max(map(len, table.splitlines())), 110)
        for text in ("weights", "keys,", "TTFT", "TPOT", "largest", "fits", "score matrices go through memory",
                     "what is seen of a prompt splits the budget", "beyond the 8192 positions"):
            self.assertIn(text, table)

    def test_a_small_model_has_small_units(self):
        table = self.ok("cost", "estimate", "--model", SOURCE / "traces" / "sample" / "model", "--machine", "t4", "--prompt-tokens", "100")
        self.assertIn("MiB", table)
        self.assertIn("TTFT", table)


class Plots(CostTest):
    asked = [*LLAMA_ON_A100, "--policy", "full", "--policy", "h2o", "--budget", "10%", "--sweep", "prompt-tokens=1K,4K,16K"]

    def test_a_folder_gets_every_figure_and_a_file_the_first(self):
        self.ok("cost", "estimate", *self.asked, "--plot", "figures", "-o", "costs.csv")
        folder = self.folder / "figures"
        names = sorted(path.stem for path in folder.glob("*.gp"))
        self.assertIn("cost-memory", names)
        self.assertIn("cost-context", names)
        for name in names:
            self.assertTrue((folder / f"{name}.svg").read_text().startswith("<?xml"), name)
        self.ok("cost", "estimate", *self.asked, "--plot", "one.png")
        self.assertTrue((self.folder / "one.png").read_bytes().startswith(b"\x89PNG"))
        self.assertIn("one.png", self.fails(2, "cost", "estimate", *self.asked, "--plot", "one.png"))
        for wrong in "", "one.gif":
            self.assertIn(".png", self.fails(2, "cost", "estimate", *self.asked, "--plot", wrong))
        self.assertFalse((self.folder / "one.gif").exists())
        for again in "figures", "figures/":
            self.assertIn("--overwrite", self.fails(2, "cost", "estimate", *self.asked, "--plot", again))
        self.ok("cost", "estimate", *self.asked, "--plot", "figures", "--overwrite")
        self.ok("plot", "cost-context", "costs.csv", "-o", "context.svg")


class HostMemory(CostTest):
    """Tests of offloading, and of the bytes that preemption moves."""
    link, copy = 25e9, 6e-6  # of the catalogue's a100-80-sxm: bytes/s, s

    def test_nothing_offloaded_is_as_before(self):
        ask = ["--prompt-tokens", "8K", "--policy", "snapkv", "--budget", "25%"]
        plain = self.one(*ask)
        self.assertEqual(self.one(*ask, "--offload", "weights=0%", "cache=0%"), plain)
        for key in "host_bytes", "prefill_transfer_seconds", "step_transfer_seconds":
            self.assertEqual(plain[key], 0)

    def test_offloaded_weights_and_cache(self):
        plain = self.one("--prompt-tokens", "8K", "--batch", "2")
        moved = self.one("--prompt-tokens", "8K", "--batch", "2", "--offload", "weights=50%", "cache=75%")
        blocks = parameters(LLAMA) - 2 * LLAMA["vocab"] * LLAMA["hidden"] - (2 * LLAMA["layers"] + 1) * LLAMA["hidden"]
        cache = 2 * (8192 + 256) * TOKEN
        self.assertEqual(moved["host_bytes"], blocks + cache * 3 // 4)  # half of two bytes per parameter
        # Two of the 32 layers are in buffers.
        self.assertEqual(moved["weights_bytes"], plain["weights_bytes"] - blocks * 30 // 32)
        self.assertEqual(moved["keys_values_bytes"], cache - cache * 3 // 4 * 30 // 32)
        # The prefill overlaps with loading; a step of the mean length, 8192 + 128 tokens, waits for the whole transfer.
        self.assertEqual(moved["prefill_transfer_seconds"], 0)
        self.assertEqual(moved["ttft_seconds"], plain["ttft_seconds"])
        loads = (blocks + 0.75 * 2 * (8192 + 128) * TOKEN) / self.link + 64 * self.copy
        self.assertTrue(math.isclose(moved["step_transfer_seconds"], loads, rel_tol=1e-6))
        self.assertTrue(math.isclose(moved["tpot_seconds"], plain["tpot_seconds"] + loads, rel_tol=1e-6))

    def test_flexgens_largest_run_on_a_t4(self):
        """The measurement is 7.32 tokens/s with attention on the host; here the cache is copied to the device."""
        row = self.cost("--model", "opt-30b", "--machine", "t4", "--prompt-tokens", "512", "--generate", "32", "--batch", "144",
                        "--offload", "weights=80%", "cache=100%")[0]
        self.assertAlmostEqual(row["tokens_per_second"] / 7.32, 1, delta=0.05)

    def test_what_is_offloaded_makes_room(self):
        ask = ["--model", "llama-3-8b", "--machine", "t4", "--prompt-tokens", "1K"]
        plain, moved = self.cost(*ask)[0], self.cost(*ask, "--offload", "weights=60%")[0]
        self.assertEqual((plain["fits"], moved["fits"]), ("no", "yes"))
        self.assertGreater(moved["largest_batch"], 0)
        fit = self.cost(*ask, "--policy", "snapkv", "--offload", "weights=60%", "--memory", "16GiB", command="fit")[0]
        self.assertEqual(fit["meets"], "yes")

    def test_hosts_are_finite(self):
        machine = {"kvsim_source": "none", "matrix_tflops": 65, "vector_tflops": 8, "memory_gib": 16,
                   "bandwidth_gb_s": 320, "host_link": {"gb_s": 12, "latency_us": 6}, "host_memory_gib": 8}
        (self.folder / "small.json").write_text(json.dumps(machine))
        ask = ["--model", "llama-3-8b", "--machine", "small.json", "--prompt-tokens", "1K", "--policy", "full"]
        for share, fits in ("60%", "yes"), ("70%", "no"):  # of 13 GiB
            row = self.cost(*ask, "--offload", f"weights={share}")[0]
            self.assertEqual((row["fits"], row["largest_batch"] > 0), (fits, fits == "yes"))
            self.assertEqual(self.cost(*ask, "--offload", f"weights={share}", "--memory", "16GiB", command="fit")[0]["meets"],
                             fits)

    def test_preemption(self):
        bytes_ = 8192 * TOKEN
        ask = ["--prompt-tokens", "8191", "--generate", "1", "--batch", "4"]
        for pages, copies in ([], 32), (["--page", "16"], 32768), (["--page", "16", "--head-pages"], 8 * 32768):
            row = self.one(*ask, *pages)
            self.assertTrue(math.isclose(row["swap_seconds"], 2 * (bytes_ / self.link + copies * self.copy)), pages)
            again = self.one("--prompt-tokens", "8K", "--generate", "1")
            self.assertTrue(math.isclose(row["recompute_seconds"], again["ttft_seconds"]))
        table = self.ok("cost", "estimate", *LLAMA_ON_A100, *ask)
        self.assertIn("Preempting one sequence at its end: swap 0.086 s, recompute 0.664 s", table)

    def test_machines_that_are_the_host(self):
        row = self.cost("--model", "llama-3-8b", "--machine", "xeon-8470", "--prompt-tokens", "1K")[0]
        self.assertIsNone(row["swap_seconds"])
        self.assertGreater(row["recompute_seconds"], 0)
        message = self.fails(2, "cost", "estimate", "--model", "llama-3-8b", "--machine", "xeon-8470", "--prompt-tokens", "1K", "--offload",
                             "cache=50%")
        self.assertIn("no link to host memory", message)

    def test_the_table(self):
        table = self.ok("cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "32K", "--budget", "10%", "--offload", "weights=50%",
                        "cache=80%",
                        *itertools.chain(*(["--policy", p] for p in ("full", "snapkv", "xkv", "kvcrush", "hashevict"))))
        for text in "in host memory 50 % of the blocks' weights and 80 % of the cache", "host", "link", "Preempting":
            self.assertIn(text, table)
        self.assertLessEqual(max(map(len, table.splitlines())), 110)

    def test_refusals(self):
        for wrong in "weights", "weights=", "weights=0.5", "weights=101%", "weights=-1%", "cache=nan%", "cache=x%", "=50%":
            self.assertIn("--offload", self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--offload", wrong))
        twice = self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--offload", "cache=1%", "cache=2%")
        self.assertIn("twice", twice)
        self.assertIn("cache", self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--offload", "cahce=1%"))


class Tiers(CostTest):
    """Tests of what crosses the links at a step, on a machine with an SSD."""
    link, copy, piece, drive = 25e9, 6e-6, 1e-7, 6e9  # bytes/s, s, s, bytes/s
    layer = TOKEN // LLAMA["layers"]  # bytes of a token in a layer
    held = 32768 + 1  # tokens that the one step attends to

    def setUp(self):
        super().setUp()
        machine = {"kvsim_source": "none", "matrix_tflops": 312, "vector_tflops": 19.5, "memory_gib": 80, "bandwidth_gb_s": 2039,
                   "host_link": {"gb_s": 25, "latency_us": 6, "operation_us": 0.1}, "ssd_link": {"gb_s": 6, "latency_us": 80},
                   "ssd_gib": 2}
        (self.folder / "drive.json").write_text(json.dumps(machine))
        self.asked = ["--model", "llama-3-8b", "--machine", "drive.json", "--prompt-tokens", "32K", "--generate", "2"]
        self.quest = ["--policy", "full+quest(read=1024)"]

    def test_what_a_step_loads(self):
        row = self.cost(*self.asked, *self.quest, "--offload", "cache=75%", "cache-ssd=25%")[0]
        # Two layers are read as a whole; of the others four query heads choose 64 pages each, of 16 tokens.
        whole, chosen = self.held * self.layer, 4096 * self.layer
        self.assertEqual(row["step_host_link_bytes"], 2 * whole + 30 * chosen)
        self.assertEqual(row["step_ssd_link_bytes"], (2 * whole + 30 * chosen) / 4)
        host = (2 * whole + 30 * chosen) / self.link + 32 * self.copy + (2 * 1 + 30 * 2 * 8 * 4096 / 16) * self.piece
        drive = (2 * whole + 30 * chosen) / 4 / self.drive + 32 * 80e-6
        self.assertTrue(math.isclose(row["step_host_link_seconds"], host))
        self.assertTrue(math.isclose(row["step_ssd_link_seconds"], drive))
        # A layer waits for the longer of both: the drive where it is read as a whole, the host link where in pieces.
        longer = 2 * (whole / 4 / self.drive + 80e-6) + 30 * (chosen / self.link + self.copy + 2 * 8 * 4096 / 16 * self.piece)
        self.assertTrue(math.isclose(row["step_loading_seconds"], longer))
        self.assertEqual(row["ssd_bytes"], self.held * TOKEN // 4 + TOKEN // 4)
        self.assertEqual((row["step_hit_rate"], row["fits"]), (0, "yes"))
        self.assertEqual(self.cost(*self.asked, "--batch", "2", "--offload", "cache-ssd=30%")[0]["fits"], "no")

    def test_a_buffer(self):
        ask = [*self.asked, *self.quest, "--offload", "cache=100%"]
        plain = self.cost(*ask)[0]
        row = self.cost(*ask, "--buffer", "2K", "--hit-rate", "40%")[0]
        # 40 % of the 4096 tokens that a layer chooses; of the whole ones as many as there is room for.
        found = (2 * 2048 + 30 * 0.4 * 4096) * self.layer
        self.assertTrue(math.isclose(plain["step_host_link_bytes"] - row["step_host_link_bytes"], found))
        self.assertTrue(math.isclose(row["step_hit_rate"], found / plain["step_host_link_bytes"]))
        self.assertEqual(row["keys_values_bytes"] - plain["keys_values_bytes"], 2048 * TOKEN)
        self.assertIn("full+quest: nothing of what is chosen is taken to be in the buffer", self.ok("cost", "estimate", *ask, "--buffer", "2K"))
        every = self.cost(*ask, "--buffer", "64K", "--hit-rate", "100%")[0]
        self.assertEqual((every["step_host_link_bytes"], every["step_hit_rate"], every["step_hidden_share"]), (0, 1, None))

    def test_loads_ahead(self):
        full = [*self.asked, "--offload", "cache=100%"]
        waits, ahead = self.cost(*full)[0], self.cost(*full, "--prefetch", "0%")[0]
        loads = self.held * TOKEN / self.link + 32 * (self.copy + self.piece)
        compute = sum(waits[f"step_{op}_seconds"] for op in ("linear", "attention", "elementwise", "policy", "communication"))
        self.assertTrue(math.isclose(waits["step_transfer_seconds"], loads, rel_tol=1e-9))
        self.assertEqual(waits["step_hidden_share"], 0)
        # What is read as a whole need not be guessed.
        self.assertTrue(math.isclose(ahead["step_transfer_seconds"], max(loads, compute) - compute, rel_tol=1e-9))
        self.assertTrue(math.isclose(ahead["step_hidden_share"], compute / loads, rel_tol=1e-9))
        # A fifth of the choices is guessed wrongly and crosses twice, but for the first layer that is not guessed.
        top = [*self.asked, "--policy", "full+top_tokens(read=1024,dense=0)", "--offload", "cache=100%"]
        guessed = self.cost(*top, "--prefetch", "80%")[0]["step_host_link_bytes"]
        self.assertTrue(math.isclose(guessed, (1 + 31 * 1.2) * 4096 * self.layer))
        tpot = {share: self.cost(*top, "--prefetch", share)[0]["tpot_seconds"] for share in ("100%", "80%", "0%")}
        self.assertTrue(tpot["100%"] < tpot["80%"] < tpot["0%"])
        self.assertLess(tpot["100%"], self.cost(*top)[0]["tpot_seconds"])

    def test_the_table_and_the_figure(self):
        ask = [*self.asked, "--policy", "full", *self.quest, "--offload", "cache=50%", "cache-ssd=25%", "--buffer", "1K", "--hit-rate", "50%",
               "--prefetch", "80%"]
        table = self.ok("cost", "estimate", *ask)
        for text in ("on the SSD 0 % of the blocks' weights and 25 % of the cache; link 6 GB/s", "buffer   1024 tokens per lane",
                     "80 % is guessed right", "What a decode step loads, mean"):
            self.assertIn(text, table)
        self.assertLessEqual(max(map(len, table.splitlines())), 110)
        self.ok("cost", "estimate", *ask, "-o", "costs.csv", "--plot", "figures", "--quiet")
        self.assertTrue((self.folder / "figures" / "cost-waterfall.svg").exists())
        self.ok("plot", "cost-waterfall", "costs.csv", "-o", "waterfall.csv")
        rows = list(csv.DictReader(io.StringIO((self.folder / "waterfall.csv").read_text())))
        priced = self.cost(*ask)
        for point, row in zip(("full", "quest"), priced, strict=True):
            mine = {line["line"]: line for line in rows if line["point"].split("+")[-1].startswith(point)}
            self.assertTrue(math.isclose(float(mine["linear"]["shown"]), 1e3 * row["step_linear_seconds"]))
            both = float(mine["SSD"]["shown"]) + float(mine["SSD"]["hidden"])
            self.assertTrue(math.isclose(both, 1e3 * row["step_ssd_link_seconds"]))
            end = max(float(line["begin"]) + float(line["shown"]) for line in mine.values())
            self.assertTrue(math.isclose(end, 1e3 * row["tpot_seconds"], rel_tol=1e-9))

    def test_refusals(self):
        def refused(*arguments):
            return self.fails(2, "cost", "estimate", *self.asked, *arguments)
        self.assertIn("more than 100%", refused("--offload", "cache=60%", "cache-ssd=50%"))
        self.assertIn("--offload cache=100%", refused("--buffer", "1K"))
        self.assertIn("--buffer 2048", refused("--offload", "cache=1%", "--hit-rate", "5%"))
        self.assertIn("no share", refused("--offload", "cache=1%", "--prefetch", "101%"))
        self.assertIn("--prefetch", refused("--prefetch", "50%"))
        message = self.fails(2, "cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--offload", "cache-ssd=50%")
        self.assertIn("no link to an SSD", message)


class Fit(CostTest):
    def fits(self, *arguments):
        return self.cost(*LLAMA_ON_A100, "--prompt-tokens", "32K", *arguments, command="fit")

    def priced(self, *arguments):
        return self.cost(*LLAMA_ON_A100, "--prompt-tokens", "32K", *arguments)

    def test_the_largest_budget_within_limits(self):
        ask = ["--batch", "8", "--policy", "snapkv"]
        found = self.fits(*ask, "--memory", "80GiB", "--tpot", "25ms")[0]
        self.assertEqual((found["meets"], found["limit"]), ("yes", "tpot"))
        budget = found["budget_tokens"]
        self.assertLessEqual(found["tpot_seconds"], 0.025)
        at, beyond = self.priced(*ask, "--budget", f"{budget},{budget + 1}")
        self.assertEqual(at["tpot_seconds"], found["tpot_seconds"])
        self.assertGreater(beyond["tpot_seconds"], 0.025)

    def test_the_largest_batch_keeps_every_limit(self):
        found = self.fits("--policy", "snapkv", "--budget", "4K", "--memory", "60GiB", "--ttft", "20s")[0]
        batch = found["largest_batch"]
        keeps = self.priced("--policy", "snapkv", "--budget", "4K", "--batch", batch)[0]
        exceeds = self.priced("--policy", "snapkv", "--budget", "4K", "--batch", batch + 1)[0]
        self.assertTrue(keeps["peak_bytes"] <= 60 * GiB and keeps["ttft_seconds"] <= 20)
        self.assertFalse(exceeds["peak_bytes"] <= 60 * GiB and exceeds["ttft_seconds"] <= 20)
        self.assertEqual(keeps["tokens_per_second"], found["largest_batch_tokens_per_second"])

    def test_why_not(self):
        rows = self.fits("--policy", "full", "--policy", "snapkv", "--ttft", "1s")
        self.assertEqual([(row["meets"], row["limit"]) for row in rows], [("no", "ttft")] * 2)
        row = self.fits("--policy", "full", "--memory", "16GiB")[0]
        self.assertEqual((row["meets"], row["limit"], row["largest_batch"]), ("no", "memory", 0))
        self.assertIsNone(row["largest_batch_tokens_per_second"])
        self.assertIn("no: memory", self.ok("cost", "fit", *LLAMA_ON_A100, "--prompt-tokens", "32K", "--memory", "16GiB"))

    def test_memory_is_the_machines_unless_said(self):
        document = self.document(*LLAMA_ON_A100, "--prompt-tokens", "8K", "--tpot", "1s", command="fit")
        self.assertEqual(document["inputs"]["memory_limit_bytes"], 80 * GiB)
        document = self.document(*LLAMA_ON_A100, "--prompt-tokens", "8K", "--memory", "80GB", command="fit")
        self.assertEqual(document["inputs"]["memory_limit_bytes"], 80 * 10**9)


class Traces(CostTest):
    """Tests on a run of the sample model."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sample = SOURCE / "traces" / "sample"
        made = cls.kvsim("capture", "--model", sample / "model", "--prompt", sample / "prompts" / "needle-0500-one.txt",
                         "--max-new-tokens", "8", "-o", "run.h5", "--quiet")
        assert made.returncode == 0, made.stderr
        cls.asked = ["--policy", "full", "--policy", "snapkv(window=8)+pyramid", "--policy", "h2o", "--policy", "xkv",
                     "--budget", "25%,100"]

    def test_what_lanes_held_is_what_is_priced(self):
        document = self.document("--trace", "run.h5", "--machine", "t4", *self.asked)
        held = self.rows("run.h5", *self.asked, "--per", "head")
        trace = document["inputs"]["traces"][0]
        self.assertEqual(trace["decode"], 8)
        for row in document["results"]:
            self.assertEqual((row["trace"], row["prompt"], row["generate"]), ("run.h5", trace["prompt"], 8))
            mine = [lane["held_tokens"] for lane in held if lane["params"] == row["params"] and
                    lane["budget"] == (row["budget"] or "25%")]
            self.assertEqual(len(mine), 16)
            self.assertEqual(row["keys_values_bytes"], sum(mine) * 2 * 64 * 2)

    def test_hits_are_those_of_the_replay(self):
        """Every lane reads as many tokens at each step, so that the mean over lanes is the replay's."""
        asked = ["--policy", "full+recent_tokens(read=32)"]
        replayed = self.rows("run.h5", *asked, "--budget", "100%")[0]
        row = self.cost("--trace", "run.h5", "--machine", "t4", *asked, "--offload", "cache=100%", "--buffer", "64")[0]
        self.assertGreater(replayed["hit_rate"], 0.5)
        self.assertTrue(math.isclose(row["step_hit_rate"], replayed["hit_rate"], rel_tol=1e-9))
        self.assertIn("--hit-rate", self.fails(2, "cost", "estimate", "--trace", "run.h5", "--machine", "t4", *asked, "--offload", "cache=100%",
                                               "--buffer", "64", "--hit-rate", "50%"))

    def test_rules_and_replays_agree(self):
        """If a split does not depend on the prompt, rule and replay agree."""
        asked = ["--policy", "full", "--policy", "snapkv(window=8)+pyramid", "--policy", "streaming_llm", "--budget", "25%"]
        replayed = self.document("--trace", "run.h5", "--machine", "t4", *asked)
        prompt = replayed["inputs"]["traces"][0]["prompt"]
        ruled = self.cost("--model", SOURCE / "traces" / "sample" / "model", "--machine", "t4", "--prompt-tokens", prompt,
                          "--generate", "8", *asked)
        for mine, theirs in zip(replayed["results"], ruled, strict=True):
            for key in "keys_values_bytes", "metadata_bytes", "end_bytes", "peak_bytes", "ttft_seconds", "tpot_seconds":
                self.assertTrue(math.isclose(mine[key], theirs[key], rel_tol=1e-9), (mine["policy"], key))

    def test_a_representation_takes_what_a_replay_counts(self):
        """Every representation that needs no file; lanes are rounded up to whole bytes where the replay rounds the sum. A
        rule knows no groups that have lost a token: it agrees where generated tokens are only appended. What MiniCache
        leaves apart only a run tells, and that nothing is dropped, which compensation has no row for then."""
        parts = [part["name"] for part in json.loads(self.ok("policy", "list", "--format", "json"))
                 if part["kind"] == "representation" and not any(param["default"] == "" for param in part["params"])]
        self.assertGreaterEqual(len(parts), 13)
        asked = ["--budget", "25%"]
        policies = [f"full+{part}" for part in parts]
        for part in parts:
            if part not in ("minicache", "shadowkv_keys"):  # they want the same tokens in every lane
                policies += [f"snapkv(window=8)+{part}", f"h2o+{part}"]
        for policy in policies:
            asked += ["--policy", policy]
        held = self.rows("run.h5", *asked)
        replayed = self.document("--trace", "run.h5", "--machine", "t4", *asked)
        prompt = replayed["inputs"]["traces"][0]["prompt"]
        ruled = self.cost("--model", SOURCE / "traces" / "sample" / "model", "--machine", "t4", "--prompt-tokens", prompt,
                          "--generate", "8", *asked)
        counted = {row["params"]: row["held_bytes"] for row in held}
        self.assertEqual(len(counted), len(policies))
        known = [row for row in ruled if "h2o" not in row["policy"] and row["policy"] not in ("full+minicache", "full+compensation")]
        for row in *replayed["results"], *known:
            self.assertIn(row["keys_values_bytes"] - counted[row["params"]], range(16), row["policy"])

    def test_the_models_shape_must_agree(self):
        self.ok("cost", "estimate", "--trace", "run.h5", "--machine", "t4", "--model", SOURCE / "traces" / "sample" / "model")
        message = self.fails(2, "cost", "estimate", "--trace", "run.h5", "--machine", "t4", "--model", "llama-3-8b")
        self.assertIn("32 layers", message)
        self.assertIn("4 layers", message)
        self.assertIn("config.json", self.fails(2, "cost", "estimate", "--trace", "t.h5", "--machine", "t4"))

    def test_what_the_trace_says_is_not_said_again(self):
        for more in (["--prompt-tokens", "8K"], ["--generate", "8"], ["--sweep", "prompt-tokens=1K,2K"]):
            self.fails(2, "cost", "estimate", "--trace", "run.h5", "--machine", "t4", *more)
        self.fails(3, "cost", "estimate", "--trace", "missing.h5", "--machine", "t4")

    def test_no_table_of_nothing(self):
        for option, wrong, why in (("--tp", "3", "do not divide"), ("--chunk", "16K", "more than the prompt"),
                                   ("--batch", "18446744073709551615", "64 bits")):
            message = self.fails(2, "cost", "estimate", "--trace", "run.h5", "--machine", "t4", *self.asked, option, wrong)
            self.assertIn(why, message)

    def test_replay_prices_its_rows(self):
        asked = ["--policy", "full", "--policy", "h2o", "--policy", "snapkv", "--budget", "25%"]
        plain = self.rows("run.h5", *asked)
        priced = self.rows("run.h5", *asked, "--machine", "t4")
        costs = self.document("--trace", "run.h5", "--machine", "t4", *asked)["results"]
        keys = ["machine", "cache_bytes", "peak_bytes", "ttft_seconds", "tpot_seconds"]
        for before, after, cost in zip(plain, priced, costs, strict=True):
            self.assertEqual(after, {**before, **{key: cost[key] for key in keys}})
            self.assertEqual(list(after)[-5:], keys)
        table = self.ok("replay", "run.h5", *asked, "--machine", "t4", "--quiet")
        self.assertIn("TPOT", table)
        self.assertIn("modelled for one sequence on t4", table)
        self.ok("replay", "run.h5", *asked, "--machine", "t4", "--quiet", "--format", "csv", "-o", "rows.csv")
        self.assertIn("No differences", self.ok("diff", "rows.csv", "rows.csv"))
        self.ok("replay", "run.h5", *asked, "--machine", "t4", "--quiet", "--format", "h5", "-o", "rows.h5")

    def test_replay_prices_whole_models_only(self):
        asked = ["run.h5", "--policy", "h2o", "--budget", "25%"]
        self.assertIn("--per all", self.fails(2, "replay", *asked, "--machine", "t4", "--per", "layer"))
        self.assertIn("--machine", self.fails(2, "replay", *asked, "--model", "llama-3-8b"))
        self.assertIn("t4", self.fails(2, "replay", *asked, "--machine", "t5"))
        self.assertIn("4 layers", self.fails(2, "replay", *asked, "--machine", "t4", "--model", "llama-3-8b"))
        self.assertIn("config.json", self.fails(2, "replay", "t.h5", *asked[1:], "--machine", "t4"))


class Lists(CostTest):
    def test_models_and_machines(self):
        for kind, name in ("models", "llama-3-8b"), ("machines", "a100-80-sxm"):
            table = self.ok("cost", kind)
            self.assertIn(name, table)
            self.assertLessEqual(max(map(len, table.splitlines())), 110)
            rows = json.loads(self.ok("cost", kind, "--format", "json"))["results"]
            self.assertEqual([row[kind[:-1]] for row in rows], sorted(row[kind[:-1]] for row in rows))
            self.assertTrue(all(row["source"] for row in rows))
            source = next(row["source"] for row in rows if row[kind[:-1]] == name)
            self.assertIn(source, self.ok("cost", kind, name))
        models = json.loads(self.ok("cost", "models", "--format", "json"))["results"]
        llama = next(row for row in models if row["model"] == "llama-3-8b")
        self.assertEqual((llama["parameters"], llama["token_bytes"]), (parameters(LLAMA), TOKEN))

    def test_files_work_as_names_do(self):
        (self.folder / "mine.json").write_text(json.dumps(
            {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}))
        mine, named = (self.cost("--model", model, "--machine", "t4", "--prompt-tokens", "1K")[0]
                       for model in ("mine.json", "llama-3-8b"))
        self.assertEqual(mine["model"], "mine.json")
        self.assertEqual({**mine, "model": ""}, {**named, "model": ""})
        (self.folder / "machine.json").write_text(json.dumps(
            {"kvsim_source": "its datasheet; compute fitted to my timings, memory assumed", "matrix_tflops": 200, "vector_tflops": 25,
             "memory_gib": 48, "bandwidth_gb_s": 1200, "reserved_gib": 1.3,
             "kvsim_fitted": {"my timings of matrix products": ["compute"]}, "ceilings": {"compute": 0.7, "memory": 0.8}}))
        row = self.cost("--model", "mine.json", "--machine", "machine.json", "--prompt-tokens", "1K")[0]
        self.assertEqual((row["machine"], row["reserved_bytes"]), ("machine", int(1.3 * GiB)))


class Refusals(CostTest):
    def refused(self, *arguments, code=2, base=(*LLAMA_ON_A100, "--prompt-tokens", "8K"), command="estimate"):
        return self.fails(code, "cost", command, *base, *arguments)

    def test_options_without_a_command(self):
        message = self.fails(2, "cost", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--policy", "h2o(recent=0.5)")
        self.assertIn("kvsim cost estimate --model llama-3-8b --machine a100-80-sxm --prompt-tokens 8K --policy "
                      "'h2o(recent=0.5)'", message)
        self.assertIn("kvsim cost calibrate", self.fails(2, "cost", "--calibrate", "run.h5"))
        self.assertIn("kvsim cost fit", self.refused("--fit", "memory=80GiB"))
        self.assertIn("--prompt-tokens", self.refused("--prompt", "8K"))

    def test_what_is_missing(self):
        for missing in "--model", "--machine", "--prompt-tokens":
            given = {"--model": "llama-3-8b", "--machine": "t4", "--prompt-tokens": "8K"}
            del given[missing]
            self.assertIn(missing, self.fails(2, "cost", "estimate", *itertools.chain(*given.items())))
        self.assertIn("--budget", self.refused("--policy", "snapkv"))

    def test_sizes(self):
        for option in "--prompt-tokens", "--generate", "--batch", "--page", "--chunk", "--tp", "--stored-kv-heads":
            base = [*LLAMA_ON_A100, *([] if option == "--prompt-tokens" else ["--prompt-tokens", "8K"])]
            for wrong in "0", "-1", "1.5", "x", "8KiB", "18446744073709551616", "99999999999999999999K", "":
                message = self.refused(f"{option}={wrong}", base=base)
                self.assertIn(option, message)
        self.assertIn("64 bits", self.refused("--batch", "18446744073709551615"))
        self.assertIn("64 bits", self.refused("--prompt-tokens", "1073741824M", base=LLAMA_ON_A100))

    def test_heads_must_divide(self):
        self.assertIn("3 devices do not divide 32", self.refused("--tp", "3"))
        self.assertIn("5 stored KV heads", self.refused("--stored-kv-heads", "5"))
        self.assertIn("expanded", self.refused("--stored-kv-heads", "expandd"))
        config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 6, "num_key_value_heads": 4, "vocab_size": 100}
        (self.folder / "odd.json").write_text(json.dumps(config))
        self.fails(3, "cost", "estimate", "--model", "odd.json", "--machine", "t4", "--prompt-tokens", "8K")
        (self.folder / "empty.json").write_text("")
        self.fails(3, "cost", "estimate", "--model", "empty.json", "--machine", "t4", "--prompt-tokens", "8K")

    def test_names(self):
        self.assertIn("llama-3-8b", self.fails(2, "cost", "estimate", "--model", "lama-3-8b", "--machine", "t4", "--prompt-tokens", "8K"))
        self.assertIn("a100-80-sxm",
                      self.fails(2, "cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-smx", "--prompt-tokens", "8K"))
        for option, wrong, meant in (("--kv", "fp61", "fp16"), ("--attention", "fash", "flash"),
                                     ("--rows", "recompute", "recomputed"), ("--format", "jsn", "json"),
                                     ("--policy", "snapvk", "snapkv"), ("--sweep", "promt-tokens=8K", "prompt")):
            self.assertIn(meant, self.refused(option, wrong), option)
        self.assertIn("Did you mean models", self.fails(2, "cost", "modles"))

    def test_budgets(self):
        for wrong in "0", "-4", "abc", "8449", "104%", "10GiB":
            self.assertIn("budget", self.refused("--policy", "snapkv", f"--budget={wrong}").lower(), wrong)
        self.assertIn("32", self.refused("--policy", "snapkv(window=32)", "--budget", "8"))
        self.ok("cost", "estimate", *LLAMA_ON_A100, "--prompt-tokens", "8K", "--policy", "h2o", "--budget", "8448")

    def test_numbers(self):
        for option, wrongs in (("--cache-traffic", ["0", "0.5", "nan", "inf"]), ("--host-floor", ["-1", "inf"]),
                               ("--weight-bits", ["0", "-4", "nan"]), ("--row-share", ["-0.1", "1.1", "nan"])):
            for wrong in wrongs:
                self.refused(f"{option}={wrong}")
        self.assertIn("--page", self.refused("--head-pages"))
        self.assertIn("chunk", self.refused("--chunk", "16K"))

    def test_limits_and_sweeps(self):
        for wrong in "memory=", "memory=80", "memory=25%", "memory=0B", "ttft=2", "ttft=0s", "tpot=-1ms", "ttft=nans":
            message = self.refused("--" + wrong, command="fit")
            self.assertIn("--" + wrong.split("=")[0], message)
        for wrong in "batch", "batch=", "batch=1,,2", "batch=1..4", "batch=4..1:x2", "batch=1..4:x1", "batch=1..4:+0", \
                "batch=1..4:2", "batch=0..4:+1", "batch=1..1000000:+1", "batch=1K,x", "budget=0%..5%:+1%":
            self.refused("--policy", "full", "--sweep", wrong)
        self.refused("--sweep", "batch=1", "batch=2")
        self.assertIn("80GiB", self.refused("--memory", "80G", command="fit"))
        self.assertIn("2^53", self.refused("--sweep", "batch=1..18446744073709551615:x2"))
        self.assertIn("swept too", self.refused("--sweep", "prompt-tokens=1K,2K"))
        self.assertEqual([row["batch"] for row in self.cost(*LLAMA_ON_A100, "--prompt-tokens", "1K", "--sweep", "batch=1..3:x1.1")],
                         [1, 2, 3])
        self.assertIn("1000000", self.refused("--sweep", "batch=1..2000:+1", "generate=1..2000:+1"))

    def test_oracles_are_served_by_nobody(self):
        self.assertIn("future", self.refused("--policy", "optimal", "--budget", "10%"))
        self.refused("--policy", "oracles", "--budget", "10%")

    def test_documents_caches_are_cheaper_than_a_prefill_if_they_come_fast(self):
        ask = ["cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--policy", "full", "--sweep", "prompt-tokens=1K,32K", "--quiet"]
        def rows(*more):
            return list(csv.DictReader(io.StringIO(self.ok(*ask, *more, "--format", "csv"))))
        for row in rows("--computed", 1, "--documents", "device"):
            self.assertEqual(row["assembled_tokens"], row["prompt"])
            self.assertAlmostEqual(float(row["assembled_ttft_seconds"]) / float(row["ttft_seconds"]), 1, places=2)
        for place, slower in ("device", False), ("host", True):
            for row in rows("--computed", 0.15, "--documents", place):
                tokens = int(row["prompt"])
                self.assertEqual(int(row["assembled_tokens"]), round(0.15 * tokens))
                self.assertEqual(int(row["assembled_bytes"]), (tokens - round(0.15 * tokens)) * 131072)
                self.assertEqual(float(row["assembled_load_seconds"]) > 0, slower)
                self.assertLess(float(row["assembled_ttft_seconds"]), float(row["ttft_seconds"]))
        self.assertEqual({row["assembled_tokens"] for row in rows()}, {""})
        self.assertRegex(self.ok(*ask, "--computed", 0.15), r"assembled\n(?s:.*)TTFT")
        self.assertIn("loaded in", self.ok(*ask[:-3], "--prompt-tokens", "8K", "--computed", 0.15))
        self.assertIn("--computed", self.fails(2, *ask, "--documents", "ssd"))
        self.assertIn("Ask without --trace", self.fails(2, *ask[:2], "--trace", "t.h5", "--machine", "t4", "--computed", 0.1))

    def test_drafting_pays_more_the_more_the_cache_weighs(self):
        ask = ["cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--tp", 8, "--policy", "streaming_llm", "--budget", 512,
               "--sweep", "prompt-tokens=1K,8K,32K", "batch=1,64", "--quiet"]
        rows = list(csv.DictReader(io.StringIO(self.ok(*ask, "--acceptance", 0.81, "--format", "csv"))))
        speedup = {(int(row["prompt"]), int(row["batch"])): float(row["draft_speedup"]) for row in rows}
        for batch in 1, 64:
            self.assertEqual(sorted(speedup[prompt, batch] for prompt in (1024, 8192, 32768)),
                             [speedup[prompt, batch] for prompt in (1024, 8192, 32768)])
        for row in rows:
            gamma, a = int(row["gamma"]), 0.81
            self.assertAlmostEqual(float(row["tokens_per_round"]), sum(a**i for i in range(gamma + 1)))
            self.assertAlmostEqual(float(row["drafted_tpot_seconds"]) * float(row["tokens_per_round"]),
                                   gamma * float(row["tpot_seconds"]) + float(row["verify_seconds"]))
            # 32 layers' keys and values of one KV head of 128 in 16 bits on each of 8 devices; the last token is not stored.
            full = int(row["batch"]) * (int(row["prompt"]) + int(row["generate"])) * 32 * 2 * 128 * 2
            self.assertEqual(int(row["drafted_bytes"]) - int(row["end_bytes"]), full)
        never = list(csv.DictReader(io.StringIO(self.ok(*ask, "--acceptance", 0, "--format", "csv"))))
        self.assertEqual({(row["gamma"], row["draft_speedup"]) for row in never}, {("0", "1")})
        unasked = list(csv.DictReader(io.StringIO(self.ok(*ask, "--format", "csv"))))
        self.assertEqual({row["gamma"] for row in unasked}, {""})
        self.assertIn("speed-up", self.ok(*ask, "--acceptance", 0.81))
        self.assertIn("--acceptance", self.fails(2, *ask, "--acceptance", 1.5))

    def test_the_first_token_where_a_small_models_cache_is_mapped(self):
        ask = ["cost", "estimate", "--model", "qwen3-8b", "--machine", "a100-80-sxm", "--prompt-tokens", "2K", "--quiet"]
        (row,) = csv.DictReader(io.StringIO(self.ok(*ask, "--predicted-by", "qwen3-0.6b", "--format", "csv")))
        # Parameters of the layers' matrices: 36 of 4,096 and 28 of 1,024. 8 KV heads of 128 in both.
        large = 36 * (4096 * 128 * (32 + 2 * 8) + 32 * 128 * 4096 + 3 * 4096 * 12288)
        small = 28 * (1024 * 128 * (16 + 2 * 8) + 16 * 128 * 1024 + 3 * 1024 * 3072)
        tokens, full, predicted = 2048, float(row["full_flops"]), float(row["predicted_flops"])
        heads = 151936 * 4096 * 2
        causal = 2 * 2 * 128 * tokens * (tokens + 1) / 2
        self.assertAlmostEqual(full / (2 * large * tokens + 36 * 32 * causal + heads), 1, places=2)
        maps = 36 * 2 * 2 * (8 * 128) ** 2 * (tokens - 1)
        self.assertAlmostEqual(predicted / (2 * small * (tokens - 1) + 28 * 16 * causal + maps + 2 * large + heads), 1, places=2)
        self.assertLess(float(row["predicted_ttft_seconds"]), float(row["ttft_seconds"]) / 5)
        self.assertGreater(float(row["predicted_maps_seconds"]), 0)
        self.assertIn("times fewer FLOPs", self.ok(*ask, "--predicted-by", "qwen3-0.6b"))
        self.assertIn("without keys and values", self.fails(2, *ask, "--predicted-by", "deepseek-v3"))

    def test_another_model_drafts(self):
        ask = ["cost", "estimate", "--machine", "a100-80-sxm", "--policy", "full", "--policy", "streaming_llm", "--budget", 512,
               "--prompt-tokens", "8K", "--quiet", "--format", "csv"]

        def rows(*more):
            return list(csv.DictReader(io.StringIO(self.ok(*ask, *more))))
        small, large = rows("--model", "qwen3-0.6b"), rows("--model", "qwen3-8b")
        drafted = rows("--model", "qwen3-8b", "--draft", "qwen3-0.6b", "--acceptance", 0.8)
        for mine, its, row in zip(small, large, drafted, strict=True):
            self.assertEqual((row["drafter"], row["draft_seconds"], row["draft_prefill_seconds"]),
                             (mine["model"], mine["tpot_seconds"], mine["ttft_seconds"]))
            for key in "tpot_seconds", "ttft_seconds", "end_bytes":
                self.assertEqual(row[key], its[key])
            gamma = int(row["gamma"])
            self.assertAlmostEqual(float(row["drafted_tpot_seconds"]) * float(row["tokens_per_round"]),
                                   gamma * float(mine["tpot_seconds"]) + float(row["verify_seconds"]))
            self.assertGreater(float(row["draft_speedup"]), 1.5)
        full = drafted[0]  # what a runtime reserves counts once
        self.assertEqual(int(full["drafted_bytes"]), int(large[0]["end_bytes"]) + int(small[0]["end_bytes"]) - int(large[0]["reserved_bytes"]))
        # A model that drafts for itself with the same cache: what the cache does alone.
        same = rows("--model", "qwen3-8b", "--draft", "qwen3-8b", "--acceptance", 0.8)
        self.assertEqual([row["drafted_tpot_seconds"] for row in same],
                         [row["drafted_tpot_seconds"] for row in rows("--model", "qwen3-8b", "--acceptance", 0.8)])
        self.assertIn("--acceptance", self.fails(2, *ask, "--model", "qwen3-8b", "--draft", "qwen3-0.6b"))

    def test_a_small_model_drafts_for_a_policys_cache(self):
        ask = ["cost", "estimate", "--machine", "a100-80-sxm", "--prompt-tokens", "32K", "--quiet", "--format", "csv"]

        def rows(*more):
            return list(csv.DictReader(io.StringIO(self.ok(*ask, *more))))
        large = ["--model", "llama-2-7b", "--policy", "full+triforce(read=1024)", "--policy", "streaming_llm", "--budget", "1K"]
        helped = [*large, "--acceptance", 0.9, "--draft", "tinyllama-1.1b", "--draft-cache", "streaming_llm(sinks=16)@256", "--draft-acceptance"]
        (small,) = rows("--model", "tinyllama-1.1b", "--policy", "streaming_llm(sinks=16)", "--budget", 256)
        alone = rows(*large, "--acceptance", 0.9)
        for by_itself, row in zip(alone, rows(*helped, 0.8), strict=True):
            self.assertEqual((row["drafter"], row["helped"], row["inner_draft_seconds"], row["draft_prefill_seconds"]),
                             ("tinyllama-1.1b", "streaming_llm@256", small["tpot_seconds"], small["ttft_seconds"]))
            inner, gamma = int(row["inner_gamma"]), int(row["gamma"])
            self.assertGreater(inner, 0)
            self.assertGreater(float(row["inner_verify_seconds"]), float(row["tpot_seconds"]))
            draft = float(row["draft_seconds"])
            self.assertAlmostEqual(draft * sum(0.8**i for i in range(inner + 1)),
                                   inner * float(row["inner_draft_seconds"]) + float(row["inner_verify_seconds"]))
            self.assertLess(draft, float(row["tpot_seconds"]))
            self.assertAlmostEqual(float(row["drafted_tpot_seconds"]) * sum(0.9**i for i in range(gamma + 1)),
                                   gamma * draft + float(row["verify_seconds"]))
            self.assertGreater(float(row["draft_speedup"]), float(by_itself["draft_speedup"]))
            # The small model is held beside both caches.
            self.assertEqual(int(row["drafted_bytes"]) - int(by_itself["drafted_bytes"]), int(small["end_bytes"]) - int(small["reserved_bytes"]))
        # Of a model that is never right nothing is left but the policy's cache.
        for by_itself, row in zip(alone, rows(*helped, 0), strict=True):
            self.assertEqual(row["inner_gamma"], "0")
            for key in "draft_seconds", "gamma", "drafted_tpot_seconds", "draft_speedup":
                self.assertEqual(row[key], by_itself[key])
        self.assertEqual({row["inner_gamma"] for row in alone}, {""})
        self.assertIn("drafts through streaming_llm@256 for this policy's cache",
                      self.ok(*ask[:-2], *helped, 0.8))
        self.assertIn("--draft-acceptance", self.fails(2, *ask, *helped[:-1]))
        self.assertIn("--draft-cache", self.fails(2, *ask, *large, "--acceptance", 0.9, "--draft", "tinyllama-1.1b", "--draft-acceptance", 0.5))
        self.assertIn("@256, for example", self.fails(2, *ask, *large, "--acceptance", 0.9, "--draft", "tinyllama-1.1b",
                                                      "--draft-cache", "full", "--draft-acceptance", 0.5))

    def test_layers_of_a_draft_at_once(self):
        ask = ["cost", "estimate", "--model", "llama-3-70b", "--machine", "a100-80-sxm", "--tp", 4, "--prompt-tokens", "8K", "--acceptance", 0.95,
               "--draft", "llama-3-8b", "--quiet", "--format", "csv", "--draft-parallel"]
        seconds = {}
        for n in 2, 4:
            (row,) = csv.DictReader(io.StringIO(self.ok(*ask, n)))
            seconds[n] = float(row["draft_seconds"])
            gamma = int(row["gamma"])
            self.assertAlmostEqual(float(row["drafted_tpot_seconds"]) * float(row["tokens_per_round"]),
                                   gamma * seconds[n] + float(row["verify_seconds"]) + float(row["calibrate_seconds"]))
            self.assertGreater(float(row["calibrate_seconds"]), 0)
        (one,) = csv.DictReader(io.StringIO(self.ok("cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--prompt-tokens", "8K",
                                                    "--quiet", "--format", "csv")))
        self.assertGreater(float(one["tpot_seconds"]), seconds[2])
        self.assertGreater(seconds[2], seconds[4])
        self.assertIn("Add --tp 8", self.fails(2, *ask, 8))

    def test_one_cache_drafts_from_half_of_its_bits(self):
        ask = ["cost", "estimate", "--model", "llama-2-7b", "--machine", "a100-80-sxm", "--prompt-tokens", "32K", "--acceptance", 0.9,
               "--policy", "full+quantspec(read=upper)", "--policy", "full+quantspec", "--policy", "full", "--quiet", "--format", "csv"]
        upper, both, full = csv.DictReader(io.StringIO(self.ok(*ask)))
        self.assertEqual(upper["drafted_bytes"], both["end_bytes"])  # what verifies is what is held
        self.assertLess(float(upper["verify_seconds"]), float(full["verify_seconds"]))
        self.assertLess(float(full["verify_seconds"]), float(both["verify_seconds"]))  # this one drafts for the full cache
        self.assertEqual((upper["draft_seconds"], both["draft_seconds"]), (upper["tpot_seconds"], both["tpot_seconds"]))
        self.assertLess(float(upper["draft_seconds"]), float(both["draft_seconds"]))
        self.assertGreater(float(upper["draft_speedup"]), float(both["draft_speedup"]))
        # The full cache does not draft for itself, and is not held twice.
        self.assertEqual((full["gamma"], full["drafted_bytes"]), ("0", full["end_bytes"]))


if __name__ == "__main__":
    kvsim_command.main()
