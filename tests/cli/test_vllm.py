#!/usr/bin/env python3
"""What kvsim.vllm has recorded. tests/golden/engines/record_vllm.py runs it.

Usage: test_vllm.py KVSIM SOURCE_DIR
"""
import csv
import gzip
import json

import h5py
import numpy as np

from kvsim_command import SOURCE, CommandTest, main

ENGINES = SOURCE / "tests/golden/engines"
BLOCK, CACHE = 32, 1888  # tokens, as record_vllm.py says


class Recording(CommandTest):
    """vllm.h5: the sample checkpoint in vLLM, whose prefix cache had the first of two blocks of the prompt."""

    def test_it_is_the_run_of_kvsim_capture(self):
        self.assertIn("sound", self.ok("trace", "check", ENGINES / "vllm.h5"))
        with h5py.File(ENGINES / "vllm.h5") as file:
            ids, prompt = file["tokens/id"][:].tolist(), int(file["segments/count"][0])
            (self.folder / "ids.json").write_text(json.dumps(ids[:prompt]))
            done = self.kvsim("capture", "--model", SOURCE / "traces/sample/model", "--tokens", "ids.json", "--max-new-tokens", 4,
                              "--ignore-eos", "--elem", "f32", "-o", "native.h5", "--quiet", errors="replace")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((len(ids), prompt, file["capture"].attrs["source"]), (40, 36, b"converted:vllm"))
            self.assertEqual((file["model"].attrs["attn_scale"], file["capture"].attrs["q_policy"]), (0.125, b"window:4"))
            with h5py.File(self.folder / "native.h5") as native:
                self.assertEqual(native["tokens/id"][:].tolist(), ids)
                np.testing.assert_allclose(file["model/inv_freq"], native["model/inv_freq"], rtol=1e-6)
                for layer in native["layers"]:
                    asked = file[f"layers/{layer}/q_token"][:]
                    self.assertEqual(asked.tolist(), list(range(BLOCK, 40)))
                    for kind in "qkv":
                        rows = native[f"layers/{layer}/{kind}"][:]
                        np.testing.assert_allclose(file[f"layers/{layer}/{kind}"], rows[:, asked] if kind == "q" else rows, atol=5e-5)

    def test_it_is_replayed_by_what_needs_no_other_queries(self):
        self.assertIn("the last 4 of 36", self.ok("trace", "info", ENGINES / "vllm.h5"))
        self.assertIn("snapkv", self.ok("replay", ENGINES / "vllm.h5", "--policy", "snapkv(window=4)", "--budget", "50%"))
        self.assertIn("needs the queries", self.kvsim("replay", ENGINES / "vllm.h5", "--policy", "h2o", "--budget", "50%").stderr)


def free_queue(requests, blocks):
    """Tokens that vLLM's prefix cache hits when one request runs at a time: its queue of free blocks, from which those in front are
    taken first. Blocks of a request that ended go to the end, the last first; one that is not full has no name, and goes to the front."""
    free, hits = [None] * blocks, []
    for request in requests:
        tokens = request["prompt"] + request["output"][:-1]
        names = [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        found = 0
        while found < (len(request["prompt"]) - 1) // BLOCK and names[found] in free:
            free.remove(names[found])
            found += 1
        free = free[-(-len(tokens) // BLOCK) - found:]
        free = [None] * (len(tokens) % BLOCK > 0) + free + names[::-1]
        hits.append(found * BLOCK)
    return hits


class Requests(CommandTest):
    """vllm_requests.jsonl.gz: the log of 150 requests with the hits that vLLM reported."""

    def hits(self, capacity=CACHE):
        log = ENGINES / "vllm_requests.jsonl.gz"
        self.ok("requests", "replay", log, "--from", "jsonl", "--block-tokens", BLOCK, "--found", "vllm", "--policy", "lru", "--capacity",
                capacity, "--each", "--quiet", "--overwrite", "-o", "hits.csv")
        with open(self.folder / "hits.csv", encoding="utf-8") as file:
            ours = [int(row["hit_tokens"]) for row in csv.DictReader(file) if row["policy"] == "lru"]
        with gzip.open(log, "rt") as file:
            return ours, [json.loads(line) for line in file]

    def test_lru_hits_what_vllm_hit(self):
        ours, requests = self.hits()
        theirs = [request["hit_tokens"] for request in requests]
        self.assertEqual((len(theirs), sum(theirs), sum(ours)), (150, 20992, 21024))  # 0.15 % more
        self.assertEqual([i for i, (mine, their) in enumerate(zip(ours, theirs)) if mine != their], [103])

    def test_what_differs_is_the_place_of_a_last_block_that_is_not_full(self):
        _, requests = self.hits()
        self.assertEqual(free_queue(requests, CACHE // BLOCK), [request["hit_tokens"] for request in requests])


if __name__ == "__main__":
    main()
