#!/usr/bin/env python3
"""kvsim and PyTorch in turn on the same study: 8 policies at 8 budgets on one trace.

    python3 tests/bench/compare_replay.py KVSIM [--tokens 4096] [--threads 1] [--pairs 3] [--skip-again]

KVSIM is the program of the build; needs torch and h5py (tools/python_env.sh makes such a Python). PyTorch does it in three ways:

    again    for each cell it computes the attention rows that the cell's policy ranks by, and those of the generated tokens
    shared   it computes all rows once per KV head; each cell ranks, and gathers the rows of what it keeps
    masks    rows as in `shared`, and rankings once per policy; all cells' losses are one product of the rows with 0/1 masks

It computes attention losses alone, where kvsim also computes outputs, their errors, R, ISR and the oracles that go with
them. All 64 losses must agree with kvsim's within 1e-3. Prints the seconds of each way over kvsim's, from starting the
program to its end, reading the trace included: median and range of ratios within a round.
"""
import argparse
import csv
import pathlib
import statistics
import subprocess
import tempfile
import time

import h5py
import torch

BUDGETS = ["5%", "10%", "15%", "20%", "30%", "40%", "50%", "60%"]
POLICIES = ["streaming_llm(sinks=0,decode=false)", "streaming_llm(decode=false)", "l2_norm(decode=false)", "keydiff(decode=false)",
            "h2o(decode=false)", "h2o(recent=0,decode=false)", "tova(unit=lane,decode=false)", "snapkv(window=32)"]
BLOCK = 512  # prompt rows at a time
SNAPKV_WINDOW = 32


class Lane:
    """One KV head: keys [T, d], its query heads' queries [g, T, d], and which rows are the prompt's."""

    def __init__(self, keys, queries, scale, prompt):
        self.keys, self.queries, self.scale, self.prompt = keys, queries, scale, prompt

    def rows(self, first, end):
        """Attention of positions [first, end) over all keys before `end`, [g, end - first, end]."""
        logits = self.queries[:, first:end] @ self.keys[:end].T * self.scale
        hidden = torch.ones(end - first, end, dtype=torch.bool).triu(first + 1)
        return logits.masked_fill_(hidden, float("-inf")).softmax(-1)

    def column_sums(self):
        sums = torch.zeros(self.prompt)
        for first in range(0, self.prompt, BLOCK):
            end = min(first + BLOCK, self.prompt)
            sums[:end] += self.rows(first, end).sum(1).mean(0)
        return sums

    def last_rows(self, n):
        return self.rows(self.prompt - n, self.prompt)


class Shared(Lane):
    """Computes what several policies want once."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.sums, self.last = super().column_sums(), super().last_rows(SNAPKV_WINDOW)

    def column_sums(self):
        return self.sums

    def last_rows(self, n):
        return self.last[:, -n:]


def score(policy, lane, budget):
    """Returns scores of the prompt's positions: the `budget` highest stay."""
    prompt, most = lane.prompt, torch.inf
    if policy.startswith("streaming_llm"):
        scores = torch.arange(prompt, dtype=torch.float32)
        scores[:0 if "sinks=0" in policy else 4] = most
        return scores
    if policy.startswith("l2_norm"):
        return -lane.keys[:prompt].norm(dim=1)
    if policy.startswith("keydiff"):
        unit = torch.nn.functional.normalize(lane.keys[:prompt], dim=1)
        return -torch.nn.functional.cosine_similarity(lane.keys[:prompt], unit.mean(0, keepdim=True))
    if policy.startswith("tova"):
        return lane.last_rows(1)[:, 0].mean(0)
    if policy.startswith("snapkv"):
        seen = lane.last_rows(SNAPKV_WINDOW).mean(1)
        seen = torch.nn.functional.avg_pool1d(seen[:, :prompt - SNAPKV_WINDOW], 5, 1, 2).mean(0)
        return torch.cat([seen, torch.full((SNAPKV_WINDOW,), most)])
    scores = lane.column_sums().clone()
    if "recent=0" not in policy:
        scores[prompt - budget // 2:] = most
    return scores


def kept(policy, lane, budget):
    return score(policy, lane, budget).topk(budget).indices


def loss_of(rows, prompt, chosen):
    """`rows`: of the positions from prompt - 1 on. Generated tokens stay."""
    return 1 - (rows[:, :, chosen].sum(-1) + rows[:, :, prompt:].sum(-1)).mean()


def again(trace, cells):
    losses = torch.zeros(len(cells))
    lanes = [lane for lane in read(trace, Lane)]
    for number, (policy, budget) in enumerate(cells):
        for lane in lanes:
            chosen = kept(policy, lane, budget)
            rows = lane.rows(lane.prompt - 1, lane.keys.shape[0])
            losses[number] += loss_of(rows, lane.prompt, chosen) / len(lanes)
    return losses


def shared(trace, cells):
    losses, n = torch.zeros(len(cells)), 0
    for lane in read(trace, Shared):
        rows = lane.rows(lane.prompt - 1, lane.keys.shape[0])
        for number, (policy, budget) in enumerate(cells):
            losses[number] += loss_of(rows, lane.prompt, kept(policy, lane, budget))
        n += 1
    return losses / n


def masks(trace, cells):
    losses, n = torch.zeros(len(cells)), 0
    for lane in read(trace, Shared):
        rows = lane.rows(lane.prompt - 1, lane.keys.shape[0]).flatten(0, 1)
        mask, order = torch.zeros(rows.shape[1], len(cells)), {}
        mask[lane.prompt:] = 1
        for number, (policy, budget) in enumerate(cells):
            known = (policy, budget) if policy == "h2o(decode=false)" else policy  # its recent tokens depend on the budget
            if known not in order:
                order[known] = score(policy, lane, budget).argsort(descending=True)
            mask[order[known][:budget], number] = 1
        losses += 1 - (rows @ mask).mean(0)
        n += 1
    return losses / n


def read(trace, kind):
    with h5py.File(trace) as file:
        scale = float(file["model"].attrs["attn_scale"])
        prompt = int(file["segments/count"][0])
        for layer in file["layers"].values():
            keys, queries = (torch.from_numpy(layer[name][...].astype("float32")) for name in "kq")
            group = queries.shape[0] // keys.shape[0]
            for head in range(keys.shape[0]):
                yield kind(keys[head], queries[head * group:(head + 1) * group], scale, prompt)


def by_kvsim(program, trace, threads, results):
    choices = [argument for policy in POLICIES for argument in ("--policy", policy)]
    subprocess.run([program, "replay", trace, *choices, "--budget", ",".join(BUDGETS), "--threads", str(threads),
                    "-o", results, "--overwrite"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--skip-again", action="store_true", help="leave out the slowest way, which takes minutes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        trace, results = (str(pathlib.Path(folder) / name) for name in ("trace.h5", "results.csv"))
        subprocess.run([arguments.program, "trace", "generate", "--prompt-tokens", str(arguments.tokens - 64), "--decode", "64",
                        "--layers", "1", "--kv-heads", "4", "--group", "4", "--head-dim", "128", "--elem", "bf16", "-o", trace],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by_kvsim(arguments.program, trace, arguments.threads, results)
        with open(results) as file:
            found = [row for row in csv.DictReader(file) if row["role"] == "policy"]
        cells = [(policy, int(row["budget_tokens"])) for policy, row in zip(POLICIES * len(BUDGETS), found)]
        expected = torch.tensor([float(row["attention_loss"]) for row in found])
        assert len(found) == len(cells) == 64
        print(f"8 policies x 8 budgets, {arguments.tokens} tokens, 4 KV heads of 4 query heads, d = 128, bf16, "
              f"{arguments.threads} threads, torch {torch.__version__}")
        for way in (masks, shared) if arguments.skip_again else (masks, shared, again):
            pairs = []
            for _ in range(1 if way is again else arguments.pairs):
                start = time.perf_counter()
                by_kvsim(arguments.program, trace, arguments.threads, results)
                middle = time.perf_counter()
                losses = way(trace, cells)
                pairs.append((time.perf_counter() - middle, middle - start))
            worst = float((losses - expected).abs().max())
            assert worst < 1e-3, f"{way.__name__}: a loss differs by {worst}"
            ratios = [theirs / ours for theirs, ours in pairs]
            theirs, ours = (statistics.median(column) for column in zip(*pairs))
            print(f"  {way.__name__:<7} / kvsim {statistics.median(ratios):7.2f}  ({min(ratios):.2f} .. {max(ratios):.2f})   "
                  f"{theirs:8.2f} s against {ours:.2f} s; losses differ by at most {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
