#!/usr/bin/env python3
"""Tests kvsim workload, and its prompts captured from the shipped sample model."""
import csv
import hashlib
import itertools
import json
import re
import subprocess
import sys

import h5py

import kvsim_command
import numpy as np
from kvsim_command import KVSIM, SOURCE, CommandTest

MODEL = SOURCE / "traces" / "sample" / "model"
WORDY = ["needle-multi-query", "documents-two", "passage-question", "summary", "continuation", "list", "explanation"]  # which ask in words
KINDS = ["needle", "needle-multi-key", "needle-multi-value", "needle-multi-query", "documents", "documents-two", "passkey", "variables",
         "common-words", "frequent-words", "copy", "turns", "conversation", "passage-question", "summary", "continuation", "list", "explanation",
         "text"]
KEYS = ["id", "kind", "seed", "context_tokens", "tokens", "answer_tokens", "context_id", "turn", "turns", "prompt", "spans",
        "expect", "answers", "answer_prefix"]
QUESTION, CONTEXT, EVIDENCE = 1 << 3, 1 << 4, 1 << 5
FLAG = {"question": QUESTION, "context": CONTEXT, "evidence": EVIDENCE}
README = (SOURCE / "traces" / "workloads" / "README.md").read_text()


class Workload(CommandTest):
    def setUp(self):
        for pattern in "*.jsonl*", "run*":
            for path in self.folder.glob(pattern):
                path.unlink()

    def workload(self, kind, *more, context=300):
        return ["workload", kind, "--context", context, "--tokenizer", MODEL, *more]

    def items(self, *arguments, **options):
        return [json.loads(line) for line in self.ok(*self.workload(*arguments, **options)).splitlines()]

    def capture(self, *more):
        return ["capture", "--model", MODEL, "--workload", "p.jsonl", "-o", "run.h5", "--quiet", "--overwrite", *more]

    def test_help_lists_the_kinds(self):
        text = self.ok("workload", "--help")
        listed = re.findall(r"(?m)^  ([a-z-]+) {2,}\w", text[text.index("Kinds:"):])
        self.assertEqual(listed, KINDS)

    def test_the_readme_names_every_key(self):
        for name in [*KEYS, "documents"]:
            self.assertIn(f"`{name}`", README.split("\n## A line\n")[1])

    def test_lines_are_as_documented(self):
        for kind in KINDS:
            with self.subTest(kind):
                context = 600 if kind in WORDY else 300
                items = self.items(kind, "--count", 5, "--seed", 9, context=context)
                self.assertEqual([item["id"] for item in items], [f"{kind}-{context}-s9-{i}" for i in range(5)])
                for item in items:
                    self.assertEqual(list(item), [*KEYS, "documents"] if kind.startswith("documents") else KEYS)
                    self.assertEqual((item["kind"], item["seed"], item["context_tokens"]), (kind, 9, context))
                    has_more_to_come = kind == "conversation" and item["turn"] + 1 < item["turns"]
                    self.assertTrue(context - (60 if has_more_to_come else 12) < item["tokens"] <= context, item["tokens"])
                    self.assertEqual(bool(item["answers"]), item["expect"] != "nothing")
                    self.assertEqual(item["answer_tokens"] > 0, bool(item["answers"]))

    def test_same_seed_same_bytes(self):
        digest = hashlib.sha256()
        for kind in (kind for kind in KINDS if kind not in (*WORDY, "documents")):
            self.ok(*self.workload(kind, "--count", 3, "-o", "p.jsonl", "--overwrite", context=256))
            data = (self.folder / "p.jsonl").read_bytes()
            self.assertEqual(data, self.ok(*self.workload(kind, "--count", 3, "--seed", 1, context=256)).encode())
            digest.update(data)
        # The same digest as in tests/unit/workloads.
        self.assertEqual(digest.hexdigest(), "c6608e2dda86b530b469c5d11d5973c8d4581ed3565d9b8b9bae02224332fb67")

    def test_styles_and_examples_reach_the_prompt(self):
        for item in self.items("needle-multi-key", "--style", "ruler", "--examples", 1, "--count", 2, context=600):
            self.assertEqual(item["prompt"].count("A special magic number is hidden within the following text."), 2)
            self.assertEqual(item["prompt"].count(" One of the special magic numbers for "), 8)
            self.assertRegex(item["prompt"], r"mentioned in the provided text is \d{7}\n\nA special")
            self.assertRegex(item["answers"][0], r"^ \d{7}$")
            self.assertEqual(item["expect"], "holds-all")

    def test_the_script_of_kinds_by_length_goes_on_where_it_was(self):
        def script(*more):
            done = subprocess.run([sys.executable, SOURCE / "tools/python/kinds_by_length.py", KVSIM, MODEL, self.folder / "kinds", "--count", "2",
                                   "--lengths", "160,300", "--tasks", "needle,passkey", *more], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done
        first = script()
        self.assertEqual(first.stderr.splitlines(), [f"{kind}-{length}-raw: 2 prompts" for length in (160, 300) for kind in ("needle", "passkey")])
        self.assertIn("| task | form | 160 | 300 |", first.stdout)
        # The sample model finds every needle; Wilson's interval of 2 of 2 is 2 / (2 + 1.96^2) = 34 % to 100 %.
        self.assertIn("| needle | raw | 2 of 2 (34\u2013100 %) | 2 of 2 (34\u2013100 %) |", first.stdout)
        (self.folder / "kinds" / "passkey-300-raw.csv").unlink()
        second = script()
        self.assertEqual(second.stderr.splitlines(), ["passkey-300-raw: 2 prompts"])
        self.assertEqual(second.stdout, first.stdout)
        answers = self.folder / "kinds" / "needle-160-raw.csv"
        before = answers.read_text()
        more = script("--count", "3", "--lengths", "160", "--tasks", "needle")
        self.assertIn("| needle | raw | 3 of 3 (44\u2013100 %) | 2 of 2 (34\u2013100 %) |", more.stdout)
        self.assertTrue(answers.read_text().startswith(before))
        self.assertEqual(answers.read_text().count("needle-160-s1-2"), 1)
        of_policies = script("--lengths", "300", "--tasks", "needle", "--policy", "streaming_llm", "--policy", "tova", "--budget", "50%",
                             "--count", "4")
        found = re.search(r"^\| needle \| raw \| 300 \| (.+) \|$", of_policies.stdout, re.MULTILINE)[1].split(" | ")
        # Prompts 0 and 1 were answered without policies; of 2 and 3 the full cache answers both, and their evidence decides.
        self.assertEqual([re.match(r"\d of 2 ", cell) is not None for cell in found], [True] * 4)
        rows = list(csv.DictReader((self.folder / "kinds" / "needle-300-raw.csv").open(newline="")))
        for cell, (policy, cut) in zip(found, itertools.product(("streaming_llm", "tova"), ("prompt", "question")), strict=True):
            right = sum(row["right"] == "1" for row in rows if (row["policy"], row["cut"]) == (policy, cut))
            self.assertTrue(cell.startswith(f"{right} of 2 "), cell)
        self.assertIn("no such task: nedle", subprocess.run([sys.executable, SOURCE / "tools/python/kinds_by_length.py", KVSIM, MODEL,
                                                             self.folder / "kinds", "--tasks", "nedle"], capture_output=True, text=True).stderr)

    def test_own_text(self):
        (self.folder / "own.txt").write_text("All of this is mine. " * 30)
        for item in self.items("needle", "--text", "own.txt", "--count", 3):
            begin, end = next((span["begin"], span["end"]) for span in item["spans"] if span["role"] == "evidence")
            rest = item["prompt"][:begin] + item["prompt"][end:]
            self.assertTrue(rest.startswith("All of this is mine. All of"), rest)
        (self.folder / "blank.txt").write_text(" \n\n ")
        self.assertIn("blank.txt", self.fails(3, *self.workload("text", "--text", "blank.txt")))
        self.assertIn("missing.txt", self.fails(3, *self.workload("text", "--text", "missing.txt")))

    def test_impossible_requests(self):
        for arguments, words in [(self.workload("nedle"), ["nedle", "Did you mean needle"]),
                                 (self.workload("needle", context=3), ["--context", "At least"]),
                                 (self.workload("needle", context=0), ["--context", "At least"]),
                                 (self.workload("needle", context=10**9), ["--context", "At most"]),
                                 (self.workload("needle", context="-5"), ["--context"]),
                                 (self.workload("needle", "--count", 0), ["--count"]),
                                 (self.workload("needle", "--facts", 2), ["--facts", "means nothing"]),
                                 (self.workload("passkey", "--text", "t.h5"), ["--text", "means nothing"]),
                                 (self.workload("turns", "--hops", 2), ["--hops", "means nothing"]),
                                 (self.workload("turns", "--facts", 0), ["--facts"]),
                                 (self.workload("variables", "--hops", 9), ["--hops", "8"]),
                                 (self.workload("needle", "--style", "pair"), ["Did you mean pairs"]),
                                 (self.workload("needle", "--style", "rulr"), ["Did you mean ruler"]),
                                 (self.workload("summary", "--examples", 1, context=600), ["--examples", "means nothing"]),
                                 (self.workload("copy", "--examples", 5), ["--examples", "4"]),
                                 (self.workload("variables", "--hops", 8, "--examples", 1), ["--examples", "do not suffice"]),
                                 (["workload"], ["KIND"]),
                                 (["workload", "needle"], ["--context is required"])]:
            with self.subTest(arguments=arguments):
                message = self.fails(2, *arguments)
                for word in words:
                    self.assertIn(word, message)
        message = self.fails(3, "workload", "needle", "--context", 300, "--tokenizer", self.folder, "-o", "p.jsonl")
        self.assertIn("tokenizer.json", message)
        self.assertIn("--tokenizer DIR", message)
        self.assertEqual(list(self.folder.glob("p.jsonl*")), [])

    def test_existing_files_are_kept_unless_told(self):
        (self.folder / "p.jsonl").write_text("precious")
        self.assertIn("--overwrite", self.fails(2, *self.workload("text", "-o", "p.jsonl")))
        self.assertEqual((self.folder / "p.jsonl").read_text(), "precious")
        self.ok(*self.workload("text", "-o", "p.jsonl", "--overwrite"))
        (self.folder / "own.txt").write_text("Own text.")
        self.fails(2, *self.workload("text", "--text", "own.txt", "-o", "own.txt", "--overwrite"))

    def test_parts_become_flags_of_the_tokens(self):
        for kind in "needle-multi-key", "passkey", "variables", "turns", "frequent-words", "text":
            self.ok(*self.workload(kind, "--count", 2, "-o", "p.jsonl", "--overwrite"))
            for item in map(json.loads, (self.folder / "p.jsonl").read_text().splitlines()):
                out = self.ok(*self.capture("--item", item["id"], "--max-new-tokens", 3, "--ignore-eos"))
                self.assertEqual(re.findall(r"(?m)^answer {5}(.*)$", out), item["answers"])
                with h5py.File(self.folder / "run.h5") as trace:
                    flags, offset = trace["tokens/flags"][:].tolist(), trace["text/offset"][:].tolist()
                    known, prompt = trace["tokens"].attrs["flags_known"], int(trace["segments/count"][0])
                    text = bytes(trace["text/bytes"][offset[1]:offset[prompt]])
                    capture = dict(trace["capture"].attrs)
                self.assertEqual((capture["workload"].decode(), capture["workload_item"].decode()), (kind, item["id"]))
                self.assertEqual(known & 0b111000, 0b111000)
                self.assertEqual((text, prompt), (item["prompt"].encode(), item["tokens"]))
                self.assertEqual(flags[0], 1)  # <s> is not part of the prompt
                for t in range(1, prompt):
                    begin, end = offset[t] - offset[1], offset[t + 1] - offset[1]
                    expected = {FLAG[s["role"]] for s in item["spans"] if s["begin"] < end and begin < s["end"]}
                    self.assertEqual(flags[t] & 0b111000, sum(expected), (item["id"], t))
                self.assertEqual([flag & 0b111100 for flag in flags[prompt:]], [4] * 3)
                self.assertIn("sound", self.ok("trace", "check", "run.h5"))
        self.assertRegex(self.ok("trace", "info", "run.h5"), r"(?m)^workload +text, text-300-s1-1$")
        self.assertEqual({row["workload"] for row in self.rows("run.h5", "--policy", "h2o", "--budget", "10%")}, {"text"})
        self.assertEqual(self.rows("t.h5", "--policy", "h2o", "--budget", "10%")[0]["workload"], None)
        with h5py.File(self.folder / "run.h5", "r+") as trace:  # as in schema 1.1
            for name in "workload", "workload_item":
                del trace["capture"].attrs[name]
        self.assertNotIn("workload", self.ok("trace", "info", "run.h5"))
        with h5py.File(self.folder / "run.h5", "r+") as trace:
            trace["capture"].attrs.create("workload", np.bytes_(b"two words"))
        self.assertIn("/capture", self.fails(3, "trace", "info", "run.h5"))

    def test_the_sample_model_finds_needles_and_the_trace_shows_where_it_looked(self):
        """Layer 3 holds the model's retrieval heads (CARD.md), so the last prompt token attends to the evidence."""
        self.ok(*self.workload("needle", "-o", "p.jsonl", context=500))
        out = self.ok(*self.capture("--max-new-tokens", 1, "--attention", "window:1"))  # one prompt: no --item needed
        self.assertEqual(re.search(r"(?m)^text {7}(.*)$", out)[1], re.search(r"(?m)^answer {5}(.*)$", out)[1])
        with h5py.File(self.folder / "run.h5") as trace:
            flags, rows = trace["tokens/flags"][:], trace["layers/0003/rows"]
            row = rows["p"][:, int(rows["ptr"][0]):int(rows["ptr"][1])]
            evidence = (flags[:row.shape[1]] & EVIDENCE) > 0
        self.assertTrue(2 < evidence.sum() < 8)
        self.assertGreater(row[:, evidence].sum(axis=1).max(), 0.5)

    def test_a_prompt_of_another_tokenizer_is_noted(self):
        item = self.items("needle")[0]
        item["tokens"] += 50
        (self.folder / "p.jsonl").write_text(json.dumps(item))
        done = self.kvsim(*self.capture("--max-new-tokens", 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("another tokenizer", done.stderr)

    def test_capture_refuses(self):
        self.ok(*self.workload("needle", "--count", 3, "-o", "p.jsonl"))
        self.assertIn("needle-300-s1-0", self.fails(2, *self.capture()))
        self.assertIn("Did you mean needle-300-s1-0", self.fails(2, *self.capture("--item", "needle-300-s1-20")))
        for more in ["--prompt", "p.jsonl"], ["--tokens", "p.jsonl"]:
            self.fails(2, *self.capture("--item", "needle-300-s1-0", *more))
        self.fails(2, "capture", "--model", MODEL, "--prompt", "p.jsonl", "--item", "x", "-o", "run.h5")
        self.assertIn("read by this command", self.fails(2, "capture", "--model", MODEL, "--workload", "p.jsonl", "--item",
                                                         "needle-300-s1-0", "-o", "p.jsonl", "--overwrite"))
        self.assertIn("missing.jsonl", self.fails(3, "capture", "--model", MODEL, "--workload", "missing.jsonl", "-o", "run.h5"))
        (self.folder / "p.jsonl").write_text("not json\n")
        self.assertIn("p.jsonl line 1", self.fails(3, *self.capture()))
        self.assertEqual(list(self.folder.glob("run*")), [])


if __name__ == "__main__":
    kvsim_command.main()
