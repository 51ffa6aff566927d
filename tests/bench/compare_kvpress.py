#!/usr/bin/env python3
"""kvsim evaluate and kvpress (https://github.com/NVIDIA/kvpress) in turn on the same prompts, presses and ratios: what they answer, and
how long they take.

    tests/bench/compare_kvpress.py KVSIM MODEL_DIR [--prompts 20] [--context 600] [--ratios 0.5 0.75 0.875] [--threads 1]
        [--new-tokens 8] [--clock wall|cpu]

Needs kvpress, torch and transformers. A workload of needles is made with kvsim; the cache is cut before the question, in float32. kvpress runs its own
pipeline on the tokens, press by press, because a press is the state of the model; kvsim runs all of a prompt's presses at once. Printed are, per press and
ratio, the prompts whose generated tokens agree, every answer that differs with how far kvsim's choice led there, and kvpress's time over kvsim's: median and range over
prompts, each a pair. kvsim's time is that of the whole command, kvpress's that of its pipeline once model and weights are loaded. Exits with 1 if an answer
differs.
"""
import argparse
import csv
import io
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import kvpress
import torch
import transformers

# kvsim's presets, and the presses that they stand for.
PRESSES = {
    "full": lambda ratio: None,
    "snapkv.kvpress": lambda ratio: kvpress.SnapKVPress(ratio),
    "h2o.kvpress": lambda ratio: kvpress.ObservedAttentionPress(ratio),
    "tova.kvpress": lambda ratio: kvpress.TOVAPress(ratio),
    "l2_norm.kvpress": lambda ratio: kvpress.KnormPress(ratio),
    "keydiff.kvpress": lambda ratio: kvpress.KeyDiffPress(ratio),
    "pyramidkv.kvpress": lambda ratio: kvpress.PyramidKVPress(ratio),
    "adakv.kvpress": lambda ratio: kvpress.AdaKVPress(kvpress.SnapKVPress(ratio)),
}
EAGER = {"h2o.kvpress"}  # kvpress needs the attention weights there, and forbids them elsewhere
# Layers of unequal length: kvpress fails on a question of several tokens, because transformers makes one mask for all layers. Fed
# one by one they need none.
UNEVEN = {"pyramidkv.kvpress"}


class Kvsim:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.run("workload", "needle-multi-key", "--context", arguments.context, "--count", arguments.prompts, "--tokenizer",
                 arguments.model, "-o", "prompts.jsonl")

    def run(self, *words):
        done = subprocess.run([self.arguments.kvsim, *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return done.stdout

    def items(self):
        return [json.loads(line) for line in (self.folder / "prompts.jsonl").read_text().splitlines()]

    def answers(self, item):
        """Rows of tokens, by policy and budget."""
        policies = [word for name in PRESSES for word in ("--policy", name)]
        budgets = ",".join(f"{100 * (1 - ratio):g}%" for ratio in self.arguments.ratios)
        text = self.run("evaluate", "--model", self.arguments.model, "--workload", "prompts.jsonl", "--item", item["id"], *policies,
                        "--budget", budgets, "--cut", "question", "--mode", "greedy", "--elem", "f32", "--max-new-tokens",
                        self.arguments.new_tokens, "--per", "token", "--format", "csv", "--quiet", "--threads",
                        self.arguments.threads)
        rows, self.kept = {}, {}
        for row in csv.DictReader(io.StringIO(text)):
            if row["skipped"]:
                sys.exit(row["skipped"])
            rows.setdefault((row["policy"], row["budget"]), []).append(int(row["token"]))
            self.kept[row["budget"]] = int(row["budget_tokens"])
        return rows


class Kvpress:
    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        self.new_tokens = arguments.new_tokens
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(arguments.model) / "tokenizer.json"))
        self.pipelines = {}
        for kind in "sdpa", "eager":
            model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation=kind)
            self.pipelines[kind] = transformers.pipeline("kv-press-text-generation", model=model.eval(), tokenizer=self.tokenizer,
                                                         device="cpu")

        self.pipelines["one by one"] = transformers.pipeline("kv-press-text-generation", model=self.pipelines["sdpa"].model,
                                                             tokenizer=self.tokenizer, device="cpu")
        self.pipelines["one by one"].generate_answer = self.generate_one_by_one

    def generate_one_by_one(self, question_ids, cache, context_length, max_new_tokens):
        pipeline, last = self.pipelines["sdpa"], question_ids.shape[1] - 1
        for i in range(last):
            pipeline.model(input_ids=question_ids[:, i:i + 1], past_key_values=cache, position_ids=torch.tensor([[context_length + i]]))
        return pipeline.generate_answer(question_ids[:, last:], cache, context_length + last, max_new_tokens)

    @torch.inference_mode()
    def answer(self, name, ratio, context, question):
        pipeline = self.pipelines["eager" if name in EAGER else "one by one" if name in UNEVEN else "sdpa"]
        tokens = {"context_ids": torch.tensor([context]), "questions_ids": [torch.tensor([question])]}
        return pipeline._forward(tokens, max_new_tokens=self.new_tokens, press=PRESSES[name](ratio))[0]


def clock(kind):
    if kind == "wall":
        return time.perf_counter()
    mine, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvsim", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("model", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--context", type=int, default=600)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.5, 0.75, 0.875])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--new-tokens", type=int, default=8)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Kvsim(arguments, pathlib.Path(folder)), Kvpress(arguments))


def compare(arguments, kvsim, baseline):
    cells = [(name, ratio) for ratio in arguments.ratios for name in PRESSES]
    agree, pairs, different = dict.fromkeys(cells, 0), [], []
    for number, item in enumerate(kvsim.items()):
        begin = next(span["begin"] for span in item["spans"] if span["role"] == "question")
        ids = baseline.tokenizer(item["prompt"])["input_ids"]
        context = baseline.tokenizer(item["prompt"].encode()[:begin].decode())["input_ids"]
        question = ids[len(context):]
        assert ids[:len(context)] == context and question, item["id"]
        if number == 0:  # warm
            kvsim.answers(item), baseline.answer("snapkv.kvpress", 0.5, context, question)
        times = {}

        def ours():
            start = clock(arguments.clock)
            rows = kvsim.answers(item)
            times["ours"] = clock(arguments.clock) - start
            return rows

        def theirs():
            start = clock(arguments.clock)
            texts = {cell: baseline.answer(*cell, context, question) for cell in cells}
            times["theirs"] = clock(arguments.clock) - start
            return texts

        if number % 2 == 0:
            rows, texts = ours(), theirs()
        else:
            texts, rows = theirs(), ours()
        pairs.append((times["ours"], times["theirs"]))
        for ratio in arguments.ratios:  # as kvpress's compute_n_kept
            budget, expected = kvsim.kept[f"{100 * (1 - ratio):g}%"], max(1, int(len(context) * (1 - ratio)))
            assert budget == expected, f"{item['id']}: kvsim keeps {budget} tokens, kvpress {expected}"
        for name, ratio in cells:
            mine = baseline.tokenizer.decode(rows[(name, f"{100 * (1 - ratio):g}%")], skip_special_tokens=True)
            if mine == texts[name, ratio]:
                agree[name, ratio] += 1
            else:
                different.append(f"{item['id']}, {name}, ratio {ratio:g}: kvsim {mine!r}, kvpress {texts[name, ratio]!r}")
    print(f"kvpress {kvpress.__version__ if hasattr(kvpress, '__version__') else ''}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}; {arguments.prompts} prompts of {arguments.context} tokens, {len(cells)} cells, "
          f"{arguments.threads} threads, {arguments.clock} clock")
    print(f"{'press':<20}" + "".join(f"ratio {ratio:<8g}" for ratio in arguments.ratios))
    for name in PRESSES:
        print(f"{name:<20}" + "".join(f"{agree[name, ratio]:>3} of {arguments.prompts:<7}" for ratio in arguments.ratios))
    print("\n".join(different))
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs))
    print(f"kvpress / kvsim {statistics.median(ratios):.1f} ({ratios[0]:.1f} .. {ratios[-1]:.1f}); per prompt {theirs:.2f} s "
          f"against {ours:.3f} s")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
