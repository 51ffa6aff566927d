#!/usr/bin/env python3
"""Tests that lines as people and benchmarks write them are prompts of every command that takes prompts, and that models are found by name."""
import csv
import io
import json
import os
import unittest.mock

import h5py
import kvsim_command
from kvsim_command import SOURCE, CommandTest

MODEL = SOURCE / "traces" / "sample" / "model"
FACTS = "The grass is green. The sky is blue. The code of apple is river. The sun is yellow."
RULER = [{"index": i, "input": f"Remember the numbers.\n{FACTS}\nWhat is the special magic number for {key}?", "outputs": ["river"],
          "length": 60, "answer_prefix": " The code of apple is"} for i, key in enumerate(("apple", "pear"))]
LONGBENCH = [{"_id": "0a1b", "context": FACTS, "input": "The code of apple is", "answers": ["river"], "dataset": "hotpotqa",
              "length": 17, "language": "en", "all_classes": None},
             {"_id": "2c3d", "context": FACTS, "input": "", "answers": ["Facts."], "dataset": "gov_report", "length": 17,
              "language": "en", "all_classes": None}]
QUESTION = 1 << 3


class BenchmarkPrompts(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, lines in ("ruler.jsonl", RULER), ("longbench.jsonl", LONGBENCH), ("other.jsonl", [{"body": "Who?"}]):
            (cls.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def capture(self, *arguments):
        self.ok("capture", "--model", MODEL, "--max-new-tokens", 2, "-o", "run.h5", "--overwrite", *arguments)
        with h5py.File(self.folder / "run.h5") as file:
            flags, capture = file["tokens/flags"][()], file["capture"].attrs
            text, offsets = bytes(file["text/bytes"][()]), file["text/offset"][()]
            question = [i for i, flag in enumerate(flags) if flag & QUESTION]
            asked = text[offsets[question[0]]:offsets[question[-1] + 1]].decode() if question else ""
            return capture["workload"].decode(), capture["workload_item"].decode(), asked

    def test_capture(self):
        asked = RULER[1]["input"].split("\n")[-1] + RULER[1]["answer_prefix"]
        for option in "--prompt", "--workload":
            workload, item, question = self.capture(option, "ruler.jsonl", "--item", "1")
            self.assertEqual((workload, item), ("ruler", "1"))
            self.assertEqual(question.strip(), asked)
            workload, item, question = self.capture(option, "longbench.jsonl", "--item", "0a1b")
            self.assertEqual((workload, item, question.strip()), ("hotpotqa", "0a1b", LONGBENCH[0]["input"]))
        self.assertEqual(self.capture("--prompt", "longbench.jsonl", "--item", "2c3d"), ("gov_report", "2c3d", ""))

    def test_evaluate(self):
        for option, name in ("--workload", "ruler.jsonl"), ("--prompt", "longbench.jsonl"):
            text = self.ok("evaluate", "--model", MODEL, option, name, "--policy", "h2o", "--budget", "50%", "--max-new-tokens", 3,
                           "--mode", "greedy", "--format", "csv", "--quiet")
            right = {row["item"]: row["right"] for row in csv.DictReader(io.StringIO(text))}
            if name == "ruler.jsonl":
                self.assertEqual(set(right), {"0", "1"})
                self.assertLessEqual(set(right.values()), {"0", "1"})
            else:
                self.assertIn(right["0a1b"], ("0", "1"))
                self.assertEqual(right["2c3d"], "")  # a summary is neither right nor wrong

    def test_csv_and_an_array_are_read_as_lines_are(self):
        """LongBench v2 is published as one array; a spreadsheet quotes commas, quotes and line ends."""
        lines = [{"id": "a", "context": 'A "word", and\nanother line.', "question": "The code of apple is", "answer": "river"},
                 {"id": "b", "context": FACTS, "question": "The sky is", "answer": "blue"}]
        (self.folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.folder / "array.json").write_text(json.dumps(lines, indent=1))
        with open(self.folder / "rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
        said = [self.ok("evaluate", "--model", MODEL, "--workload", name, "--policy", "h2o", "--budget", "50%", "--max-new-tokens", 3,
                        "--cut", "question", "--format", "csv", "--quiet") for name in ("lines.jsonl", "array.json", "rows.csv")]
        self.assertEqual(said[0].count("\n"), 5)  # two items in two modes below the names
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[0], said[2])
        (self.folder / "short.csv").write_text("prompt,answer\nWho?\n")
        (self.folder / "other.csv").write_text("body\nWho?\n")
        for name, words in ("short.csv", "line 2: has 1 fields, and the first line names 2"), ("other.csv", "its fields are body"):
            self.assertIn(words, self.fails(3, "evaluate", "--model", MODEL, "--workload", name, "--policy", "h2o", "--budget", "50%"))

    def test_study(self):
        (self.folder / "s.json").write_text(json.dumps(
            {"capture": {"model": str(MODEL), "prompts": ["ruler.jsonl", "longbench.jsonl"], "max_new_tokens": 2},
             "policies": ["h2o"], "budgets": ["50%"], "report": False}))
        self.ok("study", "s.json", "-o", "d", "--quiet")
        rows = list(csv.DictReader(io.StringIO((self.folder / "d/results.csv").read_text())))
        cuts = {}
        for row in rows:
            cuts.setdefault((row["trace"], row["workload"]), set()).add(row["cut"])
        both = {"prompt", "question"}
        self.assertEqual(cuts, {("ruler-0", "ruler"): both, ("ruler-1", "ruler"): both, ("longbench-0a1b", "hotpotqa"): both,
                                ("longbench-2c3d", "gov_report"): {"prompt"}})

    def test_other_lines_are_never_a_text(self):
        study = {"capture": {"model": str(MODEL), "prompts": ["other.jsonl"]}, "policies": ["h2o"], "budgets": ["50%"]}
        (self.folder / "other.json").write_text(json.dumps(study))
        for arguments in (["capture", "--model", MODEL, "--prompt", "other.jsonl", "-o", "no.h5"],
                          ["evaluate", "--model", MODEL, "--prompt", "other.jsonl", "--policy", "h2o", "--budget", "50%"],
                          ["study", "other.json", "-o", "no"]):
            message = self.fails(3, *arguments)
            self.assertIn("its fields are body", message)
            self.assertIn("--fields prompt=NAME", message)

    def answers(self, line, *arguments):
        (self.folder / "mine.jsonl").write_text(json.dumps(line) + "\n")
        text = self.ok("evaluate", "--model", MODEL, "--workload", "mine.jsonl", "--policy", "full", "--budget", "100%", "--max-new-tokens", 2,
                       "--mode", "greedy", "--format", "csv", "--quiet", *arguments)
        row, = csv.DictReader(io.StringIO(text))
        return row

    def test_a_prompt_and_an_answer_are_enough(self):
        row = self.answers({"prompt": f"{FACTS} << apple river >> << apple", "answer": "river"})
        self.assertEqual(row["item"], "1")
        self.assertIn(row["right"], ("0", "1"))
        other = self.answers({"ask": f"{FACTS} << apple river >> << apple", "gold": ["river"]}, "--fields", "prompt=ask,answers=gold")
        self.assertEqual(row["right"], other["right"])
        self.assertIn("no field \"gold\"", self.fails(3, "evaluate", "--model", MODEL, "--workload", "other.jsonl", "--policy", "h2o", "--budget",
                                                    "50%", "--fields", "prompt=body,answers=gold"))

    def test_messages_need_a_template(self):
        (self.folder / "chat.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "Who?"}], "answer": "Ann"}) + "\n")
        message = self.fails(2, "evaluate", "--model", MODEL, "--workload", "chat.jsonl", "--policy", "h2o", "--budget", "50%")
        self.assertIn('"1" is a list of messages', message)
        self.assertIn("--chat", message)
        (self.folder / "chat.json").write_text(json.dumps(
            {"capture": {"model": str(MODEL), "prompts": ["chat.jsonl"]}, "policies": ["h2o"], "budgets": ["50%"]}))
        self.assertIn("a study applies no chat template", self.fails(2, "study", "chat.json", "-o", "no"))

    def test_a_name_of_the_hub_is_found_in_its_cache(self):
        folder = self.folder / "hub/models--an-org--Small_1.0"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs/main").write_text("abc123\n")
        (folder / "snapshots").mkdir()
        (folder / "snapshots/abc123").symlink_to(MODEL, target_is_directory=True)
        self.enterContext(unittest.mock.patch.dict(os.environ, HF_HUB_CACHE=str(self.folder / "hub")))
        self.ok("capture", "--model", "an-org/Small_1.0", "--prompt", "ruler.jsonl", "--item", "1", "--max-new-tokens", 1, "-o", "hub.h5")
        with h5py.File(self.folder / "hub.h5") as file:
            self.assertEqual(file["model"].attrs["name"].decode(), "Small_1.0")
        self.ok("workload", "needle", "--context", 60, "--tokenizer", "an-org/Small_1.0", "-o", "needle.jsonl")
        (self.folder / "hub.json").write_text(json.dumps(
            {"capture": {"model": "an-org/Small_1.0", "prompts": ["needle.jsonl"], "max_new_tokens": 1}, "policies": ["h2o"], "budgets": ["50%"],
             "report": False}))
        self.ok("study", "hub.json", "-o", "hubs", "--quiet")
        message = self.fails(3, "capture", "--model", "an-org/Large", "--prompt", "ruler.jsonl", "-o", "no.h5")
        self.assertIn("hf download an-org/Large", message)

    def test_an_item_has_to_be_named(self):
        self.assertIn("holds 2 prompts", self.fails(2, "capture", "--model", MODEL, "--prompt", "ruler.jsonl", "-o", "no.h5"))
        (self.folder / "text.txt").write_text(FACTS)
        self.assertIn("is a text", self.fails(2, "capture", "--model", MODEL, "--prompt", "text.txt", "--item", "1", "-o", "no.h5"))


if __name__ == "__main__":
    kvsim_command.main()
