#!/usr/bin/env python3
"""What OpenVINO GenAI answered through its cache eviction, against the policy openvino. tests/golden/engines/record_openvino.py, which
recorded it, says what GenAI does, and why its first eviction comes one token after the prompt.

Usage: test_openvino.py KVSIM SOURCE_DIR
"""
import csv
import io
import itertools
import json

import h5py

from kvsim_command import SOURCE, CommandTest, main

RECORDED = json.loads((SOURCE / "tests/golden/engines/openvino.json").read_text())
RUNS, BLOCK = RECORDED["runs"], RECORDED["block"]
MODEL, PROMPTS = SOURCE / "traces/sample/model", SOURCE / "traces/sample/prompts"
TOKEN = 2 * 4 * 4 * 64 * 4  # bytes in the sample's cache: keys and values of 4 layers, 4 heads, 64 channels, 32 bits
CLOSE = 5e-5  # log-probabilities of the same blocks differ by 2e-5, 5e-6 of which is how the recording rounds; of others by 2e-3 or more


def policy(window):
    return f"openvino(block={BLOCK},start={RECORDED['start']},recent={RECORDED['recent']},snapkv_window={window})"


def same(ours, theirs):
    """How many tokens are the same before one is not."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(theirs))


def apart(ours, theirs):
    return max(abs(float(a) - b) for a, b in zip(ours, theirs, strict=True))


class OpenVino(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(PROMPTS / "longbench.jsonl", encoding="utf-8") as file:
            texts = {item["_id"]: item["context"] + item["input"] for item in map(json.loads, file)}
        work = [{"id": run["prompt"], "prompt": texts.get(run["prompt"]) or (PROMPTS / f"{run['prompt']}.txt").read_text()} for run in RUNS]
        (cls.folder / "work.jsonl").write_text("".join(json.dumps(item) + "\n" for item in work))
        cls.full = {}
        for run in RUNS:
            cls.captured("--workload", "work.jsonl", "--item", run["prompt"], "--max-new-tokens", len(run["full"]["answer"]))
            with h5py.File(cls.folder / "run.h5") as file:
                cls.full[run["prompt"]] = int(file["segments/count"][0]), file["tokens/id"][:].tolist(), file["tokens/logprob"][:].tolist()

    @classmethod
    def captured(cls, *arguments):
        done = cls.kvsim("capture", "--model", MODEL, *arguments, "--ignore-eos", "--elem", "f32", "-o", "run.h5", "--overwrite", "--quiet")
        assert done.returncode == 0, done.stderr

    def columns(self, *arguments):
        """Of each prompt, policy (full, or its window), budget and mode: tokens, their log-probabilities, and how many tokens are held."""
        rows = csv.DictReader(io.StringIO(self.ok("evaluate", "--model", MODEL, *arguments, "--elem", "f32", "--per", "token", "--format",
                                                  "csv", "--quiet"), newline=""))
        columns = {}
        for (item, params, *key), group in itertools.groupby(rows, lambda row: (row["item"], row["params"], row["budget"], row["mode"])):
            group = list(group)
            columns[item, params.partition("snapkv_window=")[2].partition(",")[0] or "full", *key] = (
                [int(row["token"]) for row in group], [row["log_p"] for row in group], [int(row["held_bytes"]) // TOKEN for row in group])
        return columns

    def evaluated(self, prompt, answer, *arguments):
        """The same of one prompt, by policy and mode: greedy, and teacher, which is fed the answer."""
        for name, tokens in (("prompt", prompt), ("answer", answer)):
            (self.folder / f"{name}.json").write_text(json.dumps(tokens))
        self.captured("--tokens", "prompt.json", "--answer-tokens", "answer.json")
        found = self.columns("--trace", "run.h5", "--mode", "both", "--max-new-tokens", len(answer), *arguments)
        return {(window, mode): column for (_, window, _, mode), column in found.items()}

    def test_the_full_cache_answers_the_same(self):
        for run in RUNS:
            prompt, ids, log_p = self.full[run["prompt"]]
            self.assertEqual((prompt, ids[prompt:]), (run["tokens"], run["full"]["answer"]), run["prompt"])
            self.assertLess(apart(log_p[prompt:], run["full"]["log_p"]), CLOSE, run["prompt"])

    def test_a_cache_that_fills_while_the_answer_is_generated(self):
        """Nothing leaves near the prompt, so cuts play no role: the same blocks leave, three times."""
        for run in RUNS:
            theirs, ids = run["growth"], self.full[run["prompt"]][1]
            found = self.evaluated(ids[:theirs["tokens"]], theirs["answer"], "--policy", "full", "--policy", policy(8), "--budget",
                                   theirs["max_cache_size"])
            tokens, _, held = found["8", "greedy"]
            self.assertEqual(tokens, theirs["answer"], run["prompt"])
            self.assertLess(apart(found["8", "teacher"][1], theirs["log_p"]), CLOSE, run["prompt"])
            self.assertGreater(apart(found["full", "teacher"][1], theirs["log_p"]), 20 * CLOSE, run["prompt"])  # so it matters what left
            blocks = [blocks for blocks, passes in theirs["blocks"] for _ in range(passes)]
            self.assertEqual([-(-count // BLOCK) for count in held], blocks, run["prompt"])

    def test_prompts_beyond_max_cache_size(self):
        """With a cut one token behind the prompt, where GenAI first evicts. With all rows of the prompt everything is the same; of 8 rows
        and that token's, which kvsim pools at once, one answer of 24 parts."""
        parted = []
        for run in RUNS:
            prompt, ids, _ = self.full[run["prompt"]]
            for share in (0.25, 0.5):
                every, last = (next(found for found in run["shares"] if (found["share"], found["window"]) == (share, window))
                               for window in (0, 8))
                size = int(share * prompt) // BLOCK * BLOCK  # as `kvsim choose` prints
                for theirs in (every, last):
                    self.assertEqual((theirs["max_cache_size"], theirs["answer"][:2]), (size, ids[prompt:prompt + 2]))
                    self.assertEqual(theirs["blocks"][0], [-(-(prompt + 1) // BLOCK), 2])  # passes: the prompt, and its first answer
                found = self.evaluated(ids[:prompt + 2], every["answer"][2:], "--policy", policy(0), "--policy", policy(9), "--budget",
                                       size, "--cut", prompt + 1)
                self.assertEqual(found["0", "greedy"][0], every["answer"][2:], (run["prompt"], share))
                self.assertLess(apart(found["0", "teacher"][1], every["log_p"][2:]), CLOSE, (run["prompt"], share))
                count = same(found["9", "greedy"][0], last["answer"][2:])
                if count < len(last["answer"]) - 2:
                    parted.append((run["prompt"], share, count))
        self.assertEqual(parted, [("needle-multi-key-1000-s4-1", 0.25, 3)])

    def test_as_it_is_evaluated(self):
        """`kvsim evaluate` and `choose` cut at the prompt's end and ask its last token again, so that from the first token on the answer is
        what the blocks that are left say, where GenAI's first two tokens are the full cache's: 8 of 24 part. What is held is the same."""
        found = self.columns("--workload", "work.jsonl", "--policy", policy(8), "--budget", "25%,50%", "--mode", "greedy",
                             "--max-new-tokens", len(RUNS[0]["full"]["answer"]))
        parted = {}
        for run, theirs in ((run, theirs) for run in RUNS for theirs in run["shares"] if theirs["window"] == 8):
            tokens, _, held = found[run["prompt"], "8", f"{theirs['share']:.0%}", "greedy"]
            self.assertEqual(held[0], theirs["max_cache_size"] + run["tokens"] % BLOCK)
            if same(tokens, theirs["answer"]) < len(tokens):
                parted[run["prompt"].removeprefix("needle-multi-key-1000-"), theirs["share"]] = same(tokens, theirs["answer"])
        self.assertEqual(parted, {("needle-1000-multi", 0.5): 10, ("text-1500", 0.5): 27, ("variables-1000", 0.25): 1, ("s4-1", 0.25): 5,
                                  ("s4-3", 0.25): 8, ("s4-4", 0.5): 20, ("s4-6", 0.25): 17, ("s4-7", 0.5): 30})


if __name__ == "__main__":
    main()
