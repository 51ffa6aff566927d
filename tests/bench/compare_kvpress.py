#!/usr/bin/env python3
"""kvsim evaluate and kvpress (https://github.com/NVIDIA/kvpress) in turn on the same prompts, presses and ratios: what they keep, what they answer, and
how long they take.

    tests/bench/compare_kvpress.py KVSIM MODEL_DIR [--prompts 20] [--context 600] [--ratios 0.5 0.75 0.875] [--threads 1]
        [--new-tokens 8] [--clock wall|cpu] [--ours command|hf|hf-batch|hf-alone] [--random FAMILY] [--csv FILE]
        [--presses PRESET ...]

Runs in $(tools/python_env.sh tests/bench/kvpress.txt). The presses are the recipes of `kvsim policy show` for the specs of
policies/kvpress.csv. A workload of needles is made with kvsim; the cache is cut before the question, in float32. kvpress runs its own
pipeline on the tokens, press by press, because a press is the state of the model. Of kvsim one of three ways runs beside it:

    command   kvsim evaluate: all of a prompt's presses at once
    hf        kvsim.hf.Cache in the same transformers model: the prompt is read once for all presses, then each answers by itself
    hf-batch  the same, and sixteen caches answer in one forward call (kvsim.hf.CacheBatch)
    hf-alone  as hf, and the prompt is read for each press

--random Qwen3 takes a tiny model of that architecture with random weights, and of MODEL_DIR the tokenizer alone. --csv adds a row per press and ratio
to FILE: policies/kvpress_kept.csv has those of three models.

Printed are, per press and ratio, the prompts whose answers agree, and the lanes (KV heads of a layer) that keep other positions. Where scores are equal up to
rounding, which positions are kept is a matter of rounding in kvpress and of age in kvsim: l2_norm finds every occurrence of a token equal in layer 0, because
the rotation of a key does not change its norm. Such a lane counts as a tie, and an answer that differs behind it is listed as one. Exits with 1 when
positions differ otherwise, or answers do where positions do not.

Last, kvpress's time over kvsim's: median and range over prompts, each a pair. The command's time is that of the whole command, all others' begin once libraries
and model are loaded. --clock cpu counts the processor's time, which says more on a busy machine.
"""
import argparse
import collections
import csv
import importlib.metadata
import io
import json
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types

import h5py
import kvpress
import kvpress.presses.kvzip_press
import torch
import transformers
from kvpress.utils import compute_n_kept

PRESSES = {"full": None}  # what kvpress.csv names, and the press that `kvsim policy show` says it is, in kvpress's words
NAMED = {}  # the same specs, as results have them
SOURCE = pathlib.Path(__file__).resolve().parents[2]
EAGER = {"h2o.kvpress"}  # kvpress needs the attention weights there, and forbids them elsewhere
# Layers of unequal length: kvpress fails on a question of several tokens, because transformers makes one mask for all layers. Fed
# one by one they need none.
UNEVEN = {"pyramidkv.kvpress"}
RESULT = ("spec", "model", "ratio", "prompts", "context", "lanes", "differ", "tied")
TIE = 1e-4  # scores as close as this, relative to the larger, are equal up to rounding


def read_presses(arguments):
    with open(SOURCE / "policies/kvpress.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["spec"] and row["spec"] in (arguments.presses or [row["spec"]])]
    for row in rows:
        shown = subprocess.run([arguments.kvsim, "policy", "show", row["spec"]], capture_output=True, text=True, check=False).stdout
        recipe = re.search(rf"^  kvpress: ({row['press']}\(.*)$", shown, re.MULTILINE)
        if recipe:
            PRESSES[row["spec"]] = recipe[1]
    NAMED.update({re.sub(r"\([^)]*\)", "", name): name for name in PRESSES})


def tokenizer_of(arguments):
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(arguments.model) / "tokenizer.json"))


def model_of(arguments, kind):
    if not arguments.random:
        return transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation=kind).eval()
    sys.path.append(str(SOURCE / "tests/hf"))
    from served_models import wide

    # Nothing ends a text: kvpress does not look at the first token of an answer.
    return wide(arguments.random, kind=kind, vocab_size=len(tokenizer_of(arguments)), max_position_embeddings=3 * arguments.context,
                eos_token_id=None)


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

    def answers(self, item, budgets):
        """Generated tokens, by policy and budget. What is kept goes to a file."""
        policies = [word for name in PRESSES for word in ("--policy", name)]
        text = self.run("evaluate", "--model", self.arguments.model, "--workload", "prompts.jsonl", "--item", item["id"], *policies,
                        "--budget", ",".join(map(str, budgets)), "--cut", "question", "--mode", "greedy", "--elem", "f32",
                        "--max-new-tokens", self.arguments.new_tokens, "--per", "token", "--format", "csv", "--quiet", "--threads",
                        self.arguments.threads, "--decisions", "kept.h5", "--overwrite")
        tokens = collections.defaultdict(list)
        for row in csv.DictReader(io.StringIO(text)):
            if row["skipped"]:
                sys.exit(row["skipped"])
            tokens[NAMED[row["policy"]], int(row["budget"])].append(int(row["token"]))
        return tokens

    def kept(self):
        """Sets of positions after the cut, by policy and budget: [layer][KV head]."""
        out = {}
        with h5py.File(self.folder / "kept.h5") as file:
            heads = int(file.attrs["n_kv_heads"])
            for cell in file["cells"].values():
                position, first, pointers = (cell[name][...] for name in ("position", "first_step", "lane_ptr"))
                lanes = [set(position[a:b][first[a:b] == 0].tolist()) for a, b in zip(pointers[:-1], pointers[1:])]
                key = NAMED[cell.attrs["policy"].decode()], int(cell.attrs["budget"].decode())
                out[key] = [lanes[i:i + heads] for i in range(0, len(lanes), heads)]
        return out


class KvsimCaches(Kvsim):
    """The same answers and sets from kvsim.hf; needs the Python package."""

    def __init__(self, arguments, folder):
        super().__init__(arguments, folder)
        import kvsim.hf

        self.hf = kvsim.hf
        PRESSES.pop("kvzip(sinks=4)+one_threshold", None)  # its second pass is kvsim evaluate's
        self.model, self.tokenizer = model_of(arguments, "sdpa"), tokenizer_of(arguments)
        end = self.model.generation_config.eos_token_id
        self.end = set() if end is None else set(torch.as_tensor(end).reshape(-1).tolist())

    @torch.no_grad()
    def answers(self, item, budgets):
        begin = next(span["begin"] for span in item["spans"] if span["role"] == "question")
        ids = self.tokenizer(item["prompt"])["input_ids"]
        before = len(self.tokenizer(item["prompt"].encode()[:begin].decode())["input_ids"])
        prompt = None if self.arguments.ours == "hf-alone" else self.hf.Prompt(self.model, ids[:before])
        tokens, self.sets = {}, {}
        cells = [(name, budget) for budget in budgets for name in PRESSES]
        together = 16 if self.arguments.ours == "hf-batch" else 1
        begun = {cell: self.hf.Cache(self.model, *cell, threads=self.arguments.threads) for cell in cells}
        if prompt is not None:
            assert not any(prompt.begin(list(begun.values())))
        for begin in range(0, len(cells), together):
            caches = {cell: begun.pop(cell) for cell in cells[begin:begin + together]}
            for cell, cache in caches.items():
                if prompt is None:
                    cache.prefill(ids[:before])
                self.sets[cell] = [[set(lane.tolist()) for lane in cache.kept(layer)] for layer in range(len(cache))]
            tokens.update(zip(caches, self.generated(list(caches.values()), ids[before:])))
        return tokens

    def generated(self, caches, question):
        tokens = [[] for _ in caches]
        batch = self.hf.CacheBatch(caches) if len(caches) > 1 else None
        rows, feed = list(range(len(caches))), [question] * len(caches)
        while rows:
            logits = [caches[0].feed(feed[0])] if batch is None else batch.feed(feed, rows)
            for row, of in zip(rows, logits):
                tokens[row].append(int(of.argmax()))
            rows = [row for row in rows if len(tokens[row]) < self.arguments.new_tokens and tokens[row][-1] not in self.end]
            feed = [tokens[row][-1:] for row in rows]
        return tokens

    def kept(self):
        return self.sets


class Kvpress:
    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        self.new_tokens = arguments.new_tokens
        self.tokenizer = tokenizer_of(arguments)
        # KVzipPress loads one by the model's name.
        kvpress.presses.kvzip_press.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda path: self.tokenizer)
        self.pipelines = {kind: self.pipeline(model_of(arguments, kind)) for kind in ("sdpa", "eager")}
        config = self.pipelines["sdpa"].model.config
        self.lanes = config.num_hidden_layers * config.num_key_value_heads
        self.pipelines["one by one"] = self.pipeline(self.pipelines["sdpa"].model)
        self.pipelines["one by one"].generate_answer = self.generate_one_by_one

    def pipeline(self, model):
        return transformers.pipeline("kv-press-text-generation", model=model, tokenizer=self.tokenizer, device="cpu")

    def generate_one_by_one(self, question_ids, cache, context_length, max_new_tokens):
        pipeline, last = self.pipelines["sdpa"], question_ids.shape[1] - 1
        for i in range(last):
            pipeline.model(input_ids=question_ids[:, i:i + 1], past_key_values=cache, position_ids=torch.tensor([[context_length + i]]))
        return pipeline.generate_answer(question_ids[:, last:], cache, context_length + last, max_new_tokens)

    @torch.inference_mode()
    def answer(self, name, budget, context, question):
        """The text that follows; scores of the context [KV heads, tokens] and sets of kept positions [KV heads], per layer."""
        pipeline = self.pipelines["eager" if name in EAGER else "one by one" if name in UNEVEN else "sdpa"]
        # So that the share of the context is the budget in whole tokens, however kvpress rounds it: what stays, and in KVzip what goes.
        zip_press = name.startswith("kvzip")
        share = (budget + (-1e-6 if zip_press else 1e-6)) / len(context)
        press = eval(PRESSES[name], vars(kvpress) | {"share": share}) if name != "full" else None
        scores = {}
        if zip_press:
            end = press.compress_post

            def recorded_end(model):
                end(model)
                scores.update((layer.self_attn, press.score_val[i].clone()) for i, layer in enumerate(model.model.layers))

            press.compress_post = recorded_end
        elif isinstance(press, kvpress.BlockPress):  # what it does to values says what it keeps of them; there are no scores of all
            compress = press.compress

            def recorded_blocks(module, hidden, keys, values, *rest):
                marks = torch.arange(keys.shape[2], dtype=keys.dtype)[None, None, :, None].expand(keys.shape).contiguous()
                marks = compress(module, hidden, keys, marks, *rest)[1]
                scores[module] = torch.full((1, *keys.shape[1:3]), torch.nan), [set(head[:, 0].int().tolist()) for head in marks[0]]
                return compress(module, hidden, keys, values, *rest)

            press.compress = recorded_blocks
        elif press is not None:
            scorer = getattr(press, "press", press)
            score = scorer.score

            def recorded(module, *rest):
                scores[module] = score(module, *rest)
                return scores[module].clone()  # AdaKVPress changes it

            scorer.score = recorded
        text = pipeline._forward({"context_ids": torch.tensor([context]), "questions_ids": [torch.tensor([question])]},
                                 max_new_tokens=self.new_tokens, press=press)[0]
        if isinstance(press, kvpress.BlockPress):
            return text, [(nothing[0], kept) for nothing, kept in scores.values()]
        return text, [(of_layer[0], self.kept(press, module, of_layer[0])) for module, of_layer in scores.items()]

    @staticmethod
    def kept(press, module, scores):
        heads, length = scores.shape
        if isinstance(press, (kvpress.AdaKVPress, kvpress.KVzipPress)):
            _, masked_head, masked = module.masked_key_indices
            return [set(range(length)) - set(masked[masked_head == head].tolist()) for head in range(heads)]
        n = (press.get_layer_budget(module, length) if isinstance(press, kvpress.PyramidKVPress)
             else compute_n_kept(length, press.compression_ratio))
        return [set(scores[head].topk(n).indices.tolist()) for head in range(heads)]


def compare_kept(ours, theirs):
    """Lanes that keep other positions: those where scores tie, and those where they do not. `theirs` are layers of Kvpress.answer."""
    tied = wrong = 0
    for layer, (scores, kept) in enumerate(theirs):
        other = [(ours[layer][head] - mine, mine - ours[layer][head]) for head, mine in enumerate(kept)]
        swapped = [[float(scores[head, j]) for j in sets[0] | sets[1]] for head, sets in enumerate(other)]
        of_layer = sum(map(bool, swapped))
        # AdaKVPress ranks over a layer, so that a tie may be one of two heads.
        even = all(len(sets[0]) == len(sets[1]) for sets in other)
        groups = swapped if even else [[score for group in swapped for score in group]]
        if all(not group or max(group) - min(group) <= TIE * max(map(abs, group)) for group in groups):
            tied += of_layer
        else:
            wrong += of_layer
    return tied, wrong


def clock(kind):
    if kind == "wall":
        return time.perf_counter()
    mine, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def timed(kind, work, *arguments):
    start = clock(kind)
    result = work(*arguments)
    return result, clock(kind) - start


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
    parser.add_argument("--ours", choices=["command", "hf", "hf-batch", "hf-alone"], default="command")
    parser.add_argument("--random", metavar="FAMILY")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--presses", nargs="+", metavar="PRESET", help="some of them")
    arguments = parser.parse_args()
    read_presses(arguments)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.random and arguments.ours == "command":  # both read it from a folder
            made = pathlib.Path(folder) / f"random {arguments.random}"
            model_of(arguments, "sdpa").save_pretrained(made)
            shutil.copy(pathlib.Path(arguments.model) / "tokenizer.json", made)
            arguments.random, arguments.model = None, str(made)
        ours = Kvsim if arguments.ours == "command" else KvsimCaches
        sys.exit(compare(arguments, ours(arguments, pathlib.Path(folder)), Kvpress(arguments)))


def compare(arguments, kvsim, baseline):
    cells = [(name, ratio) for ratio in arguments.ratios for name in PRESSES]
    agree, tied_lanes, wrong_lanes = (dict.fromkeys(cells, 0) for _ in range(3))
    pairs, listed, wrong = [], [], False
    for number, item in enumerate(kvsim.items()):
        begin = next(span["begin"] for span in item["spans"] if span["role"] == "question")
        ids = baseline.tokenizer(item["prompt"])["input_ids"]
        context = baseline.tokenizer(item["prompt"].encode()[:begin].decode())["input_ids"]
        question = ids[len(context):]
        assert ids[:len(context)] == context and question, item["id"]
        budgets = {ratio: int(len(context) * (1 - ratio)) for ratio in arguments.ratios}

        def theirs():
            return {(name, ratio): baseline.answer(name, budgets[ratio], context, question) for name, ratio in cells}

        if number == 0:  # warm
            kvsim.answers(item, budgets.values()), baseline.answer(next(iter(PRESSES)), budgets[arguments.ratios[0]], context, question)
        if number % 2 == 0:
            (tokens, mine), (answers, other) = (timed(arguments.clock, kvsim.answers, item, budgets.values()),
                                                timed(arguments.clock, theirs))
        else:
            (answers, other), (tokens, mine) = (timed(arguments.clock, theirs),
                                                timed(arguments.clock, kvsim.answers, item, budgets.values()))
        pairs.append((mine, other))
        kept = kvsim.kept()
        for name, ratio in cells:
            text, layers = answers[name, ratio]
            mine = kept[name, budgets[ratio]]
            if name.startswith("kvzip"):  # a tie may be one of two layers
                mine, layers = [sum(mine, [])], [(torch.cat([scores for scores, _ in layers]), sum((of_layer for _, of_layer in layers), []))]
            tied, differing = compare_kept(mine, layers)
            tied_lanes[name, ratio] += tied
            wrong_lanes[name, ratio] += differing
            ours = baseline.tokenizer.decode(tokens[name, budgets[ratio]], skip_special_tokens=True)
            if ours == text:
                agree[name, ratio] += 1
            else:
                why = "a tie" if tied and not differing else "other positions" if differing else "the same positions"
                listed.append(f"{item['id']}, {name}, ratio {ratio:g}, {why}: kvsim {ours!r}, kvpress {text!r}")
                wrong |= why != "a tie"
            wrong |= differing > 0
    print(f"kvpress {importlib.metadata.version('kvpress')}, torch {torch.__version__}, transformers {transformers.__version__}; "
          f"{arguments.prompts} prompts of {arguments.context} tokens, {len(cells)} cells, {arguments.threads} threads, "
          f"{arguments.clock} clock, kvsim as {arguments.ours}"
          + (f", a random {arguments.random}" if arguments.random else ""))
    print("answers that agree; lanes that keep other positions, ties apart; lanes with ties")
    print(f"{'press':<18}" + "".join(f"ratio {ratio:<16g}" for ratio in arguments.ratios))
    for name in PRESSES:
        print(f"{name:<18}" + "".join(f"{agree[name, ratio]:>3} of {arguments.prompts:<3} {wrong_lanes[name, ratio]:>3} {tied_lanes[name, ratio]:>4}   "
                                      for ratio in arguments.ratios))
    print("\n".join(listed))
    if arguments.csv:
        with open(arguments.csv, "a", newline="") as file:
            if file.tell() == 0:
                csv.writer(file, lineterminator="\n").writerow(RESULT)
            csv.writer(file, lineterminator="\n").writerows(
                (name, "/".join(pathlib.Path(arguments.model).parts[-2 if arguments.model.endswith("/model") else -1:]), ratio, arguments.prompts, arguments.context,
                 arguments.prompts * baseline.lanes, wrong_lanes[name, ratio], tied_lanes[name, ratio]) for ratio in arguments.ratios
                for name in PRESSES if name != "full")
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs))
    print(f"kvpress / kvsim {statistics.median(ratios):.1f} ({ratios[0]:.1f} .. {ratios[-1]:.1f}); per prompt {theirs:.2f} s "
          f"against {ours:.3f} s")
    return int(wrong)


if __name__ == "__main__":
    main()
