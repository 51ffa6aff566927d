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
    """vllm.h5: the sample checkpoint in vLLM, whose prefix cache had the first of two blocks of the prompt. vllm_drafts.h5: the same with
    drafts out of its own text, some of which were rejected. vllm_latent.h5: latent attention."""

    def compare(self, recording, model, prompt, generated, queries_from=0):
        """Tokens, queries, keys and values are those of kvsim capture."""
        self.assertIn("sound", self.ok("trace", "check", ENGINES / recording))
        with h5py.File(ENGINES / recording) as file:
            ids = file["tokens/id"][:].tolist()
            self.assertEqual((len(ids), int(file["segments/count"][0]), file["capture"].attrs["source"]),
                             (prompt + generated, prompt, b"converted:vllm"))
            (self.folder / "ids.json").write_text(json.dumps(ids[:prompt]))
            done = self.kvsim("capture", "--model", model, "--tokens", "ids.json", "--max-new-tokens", generated, "--ignore-eos", "--elem",
                              "f32", "-o", "native.h5", "--overwrite", "--quiet", errors="replace")
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(self.folder / "native.h5") as native:
                self.assertEqual(native["tokens/id"][:].tolist(), ids)
                np.testing.assert_allclose(file["model/inv_freq"], native["model/inv_freq"], rtol=1e-6)
                for name in ("n_kv_heads", "head_dim", "v_head_dim", "rotary_dim", "first_rotated", "rope_layout"):
                    self.assertEqual(file["model"].attrs.get(name), native["model"].attrs.get(name), name)
                for name in ("attn_scale", "rope_attention_factor"):
                    self.assertAlmostEqual(file["model"].attrs[name], native["model"].attrs[name], 6, name)
                for layer, theirs in file["layers"].items():
                    mine, asked = native["layers"][layer], np.arange(queries_from, len(ids))
                    if queries_from:
                        self.assertEqual(theirs["q_token"][:].tolist(), asked.tolist())
                    self.assertEqual({kind for kind in "qkv" if kind in theirs}, {kind for kind in "qkv" if kind in mine})
                    for kind in "qkv" if "v" in mine else "qk":
                        np.testing.assert_allclose(theirs[kind], mine[kind][:][:, asked] if kind == "q" else mine[kind], atol=5e-5)

    def test_it_is_the_run_of_kvsim_capture(self):
        self.compare("vllm.h5", SOURCE / "traces/sample/model", 36, 4, BLOCK)
        with h5py.File(ENGINES / "vllm.h5") as file:
            self.assertEqual((file["model"].attrs["attn_scale"], file["capture"].attrs["q_policy"]), (0.125, b"window:4"))

    def test_rejected_drafts_left_no_rows(self):
        self.compare("vllm_drafts.h5", SOURCE / "traces/sample/model", 36, 13)
        with h5py.File(ENGINES / "vllm_drafts.h5") as file:  # the last two passes had four drafts each, of which four and one were accepted
            self.assertEqual(file["passes/q_len"][:].tolist(), [36, 1, 1, 1, 1, 1, 1, 5, 2])

    def test_latent_attention(self):
        self.compare("vllm_latent.h5", ENGINES / "latent_model", 16, 8)
        self.assertIn("h2o", self.ok("replay", ENGINES / "vllm_latent.h5", "--policy", "h2o", "--budget", "50%"))

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
