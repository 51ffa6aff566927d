#!/usr/bin/env python3
"""Caches of llama.cpp's types answer in kvsim as they do in llama.cpp. tests/golden/engines/record_llama_cache.py records llama_cache.json
and says what is compared.

Usage: test_llama_cache.py KVSIM SOURCE_DIR
"""
import csv
import io
import json
import math
import shutil
import sys

import numpy as np

from kvsim_command import SOURCE, CommandTest, keep_first_layers, main

sys.path.insert(0, str(SOURCE / "tests/support"))
import llama_order  # noqa: E402 - after the path to it
import small_gguf  # noqa: E402

SAMPLE = SOURCE / "traces/sample/model"
FOUND = json.loads((SOURCE / "tests/golden/engines/llama_cache.json").read_text())
ROUNDED = 1e-5  # the last digit of the file's log-probabilities


def apart(mine, their):
    """Root of the mean square."""
    return math.sqrt(np.mean(np.square(np.subtract(mine, their))))


def named(keys, values, rotate):
    return "full" if keys == "f32" else f"full+llama_cpp(keys={keys},values={values},rotate={str(rotate).lower()})"


class Recorded:
    """What llama.cpp answered, per cache: (types of keys and of values, whether it rotates as it does by itself)."""

    def __init__(self, name):
        self.prompts, self.given = FOUND[name]["prompts"], FOUND[name]["given"]
        self.log_p, self.answers = ({(of["keys"], of["values"], of["rotate"]): of[part] for of in FOUND[name]["caches"]}
                                    for part in ("log_p", "answers"))

    def moved(self, cache):
        """How far a cache moves log-probabilities from those without."""
        return apart(self.log_p[cache], self.log_p["f32", "f32", True])

    def queries(self, cache):
        """The most that llama.cpp's queries can be of it, which kvsim has as they are. For keys of f16 they are of f16, too, and no more
        than a part of what a cache of f16 moves. For coded keys they are of 8 bits, and no more than a part of what keys of q8_0 move."""
        return self.moved(("f16", "f16", True) if cache[0] == "f16" else ("q8_0", "f16", cache[2]))

    def neighbours(self, cache):
        """What these differences become where they are coded again, in later layers: of two numbers d apart, d / step have neighbouring
        codes, a step apart. An error e of codes says step = sqrt(12) e; a normal d is 0.8 of its root mean square on average. Twice
        that, for chance: of a few dozen log-probabilities."""
        return 2 * math.sqrt(0.8 * math.sqrt(12) * self.queries(cache) * self.moved(cache))


class Answers(CommandTest):
    def evaluate(self, recorded, model, cut, policies, mode="teacher"):
        """Log-probabilities of the given answers per policy, and the answers that it gives itself."""
        asked = [part for policy in policies for part in ("--policy", policy)]
        log_p, answers = ({policy: [] for policy in policies} for _ in range(2))
        for prompt, given in zip(recorded.prompts, recorded.given):
            for name, ids in (("prompt", prompt), ("answer", given)):
                (self.folder / f"{name}.json").write_text(json.dumps(ids))
            self.said("capture", "--model", model, "--tokens", "prompt.json", "--answer-tokens", "answer.json", "--ignore-eos",
                      "--elem", "f32", "-o", "run.h5", "--overwrite", "--quiet")
            rows = list(csv.DictReader(io.StringIO(self.said(
                "evaluate", "--model", model, "--trace", "run.h5", *asked, "--budget", "100%", "--cut", cut, "--elem", "f32",
                "--mode", mode, "--max-new-tokens", len(given), "--per", "token", "--format", "csv", "--quiet"))))
            for kind, key, into, read in (("teacher", "log_p", log_p, float), ("greedy", "token", answers, int)):
                found = [read(row[key]) for row in rows if row["mode"] == kind]
                for index, policy in enumerate(policies if found else ()):
                    into[policy].append(found[index * len(given):(index + 1) * len(given)])
        return log_p, answers

    def said(self, *arguments):
        done = self.kvsim(*arguments, errors="replace")  # tokens are written as they are, also parts of a letter
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_codes_of_one_layer(self):
        """Keys and values of the first layer follow from tokens alone, whatever is coded: what is compared are the codes."""
        model, recorded = self.folder / "one", Recorded("one layer")
        shutil.copytree(SAMPLE, model)
        keep_first_layers(model, 1)
        log_p, answers = self.evaluate(recorded, model, "prompt", [*map(named, *zip(*recorded.log_p)), "full+q8_0", "full+q4_0"], "both")
        np.testing.assert_allclose(log_p["full"], recorded.log_p["f32", "f32", True], atol=2 * ROUNDED)
        for cache, theirs in recorded.log_p.items():
            with self.subTest(cache):
                self.assertEqual(answers[named(*cache)], recorded.answers[cache])
                if cache[0] == cache[1] == "f32" or cache[0] == cache[1] == "f16":
                    continue
                self.assertLess(apart(log_p[named(*cache)], theirs), recorded.queries(cache))
                if cache[:2] != ("q8_0", "f16"):  # whose queries hide how they rotate
                    self.assertGreater(apart(log_p[named(*cache[:2], not cache[2])], theirs), recorded.queries(cache))
        for kind in ("q8_0", "q4_0"):
            self.assertEqual(log_p[f"full+{kind}"], log_p[named(kind, kind, False)])

    def test_codes_that_later_layers_read(self):
        """Token by token from the first on, as llama.cpp reads its prompt; the first token, which --cut 1 does not read through the cache,
        is one without keys and values."""
        recorded = Recorded("token 0 empty")
        caches = [cache for cache in recorded.log_p if cache[1] == "q4_0"]
        policies = [named(*cache) for cache in caches]
        config, tensors = small_gguf.checkpoint(SAMPLE)
        tensors = llama_order.without_first(tensors)
        model = llama_order.write_glm(config, small_gguf.side_by_side(config, tensors), self.folder / "glm", SAMPLE / "tokenizer.json")
        halves = llama_order.write_plain(config, tensors, self.folder / "llama", SAMPLE / "tokenizer.json")
        log_p, answers = self.evaluate(recorded, model, 1, policies, "both")
        other_order = self.evaluate(recorded, halves, 1, policies)[0]
        exact_prompt = self.evaluate(recorded, model, "prompt", policies)[0]
        for cache, policy in zip(caches, policies):
            with self.subTest(cache):
                theirs, near = recorded.log_p[cache], recorded.neighbours(cache)
                self.assertEqual(answers[policy], recorded.answers[cache])
                self.assertLess(apart(log_p[policy], theirs), near)
                self.assertGreater(apart(log_p[named(*cache[:2], not cache[2])], theirs), near)
                self.assertGreater(apart(exact_prompt[policy], theirs), near)
                (self.assertLess if cache[0] == "f16" else self.assertGreater)(apart(other_order[policy], theirs), near)


if __name__ == "__main__":
    main()
