#!/usr/bin/env python3
"""kvsim and PyTorch in turn on the same checkpoint, prompt and threads: prefill and greedy decoding.

    python3 tests/bench/compare_torch.py BENCH_GENERATE MODEL_DIR [--prompt 512 1984] [--steps 32] [--threads 2]
        [--pairs 5] [--dtype float32 bfloat16] [--capture] [--clock wall|cpu]

Needs torch and transformers; BENCH_GENERATE is the program of that name from the build. Prints, for each prompt
length and dtype of PyTorch, kvsim's time over PyTorch's: median and range over the pairs of a ratio taken within
each pair, so that what else the machine does hits both. kvsim always computes in float; --capture makes it write a
trace as well. PyTorch runs transformers' model with SDPA attention, the whole prompt in one call. Against float32
the chosen tokens are compared one by one. --clock cpu counts the processor's time instead of the clock on the wall, which
says more on a busy machine; with --threads 1, since threads that wait for others are counted too.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import time

import torch
import transformers


class Kvsim:
    def __init__(self, program, model, threads, captured, clock):
        self.column = 2 if clock == "cpu" else 0
        self.kind = "capture" if captured else "run"
        self.process = subprocess.Popen([program, model, str(threads), "f32"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __call__(self, prompt, steps):
        print(self.kind, steps, *prompt, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        return float(answer[self.column]), float(answer[self.column + 1]), [int(word) for word in answer[4:]]


class Torch:
    def __init__(self, model, dtype, clock):
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def __call__(self, prompt, steps):
        cache = transformers.DynamicCache()
        chosen = []
        start = self.clock()
        out = self.model(torch.tensor([prompt]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        token = out.logits[0, -1].argmax()
        middle = self.clock()
        for _ in range(steps):
            chosen.append(int(token))
            out = self.model(token.view(1, 1), past_key_values=cache, use_cache=True)
            token = out.logits[0, -1].argmax()
        return middle - start, self.clock() - middle, chosen


def row(what, pairs):
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = (statistics.median(column) for column in zip(*pairs))
    print(f"  {what:<8} {statistics.median(ratios):6.2f}x  ({min(ratios):.2f} .. {max(ratios):.2f})"
          f"   {1e3 * ours:9.1f} ms against {1e3 * theirs:9.1f} ms", flush=True)


def compare(kvsim, baseline, dtype, prompt, steps, pairs):
    kvsim(prompt, 2), baseline(prompt, 2)  # warm
    prefill, decode, agreed = [], [], 0
    for pair in range(pairs):
        if pair % 2 == 0:
            ours, theirs = kvsim(prompt, steps), baseline(prompt, steps)
        else:
            theirs, ours = baseline(prompt, steps), kvsim(prompt, steps)
        prefill.append((ours[0], theirs[0]))
        decode.append((ours[1], theirs[1]))
        agreed = next((i for i, (a, b) in enumerate(zip(ours[2], theirs[2])) if a != b), steps)
    print(f"{len(prompt)} prompt tokens, {steps} steps, kvsim {kvsim.kind} / PyTorch {dtype}; "
          f"the first {agreed} of {steps} chosen tokens agree")
    row("prefill", prefill)
    row("decode", decode)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, nargs="+", default=[512, 1984])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--capture", action="store_true")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    vocab = json.loads((pathlib.Path(arguments.model) / "config.json").read_text())["vocab_size"]
    kvsim = Kvsim(arguments.program, arguments.model, arguments.threads, arguments.capture,
                  arguments.clock)
    print(f"{arguments.model}: {arguments.threads} threads, {arguments.clock} clock, torch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    for dtype in arguments.dtype:
        baseline = Torch(arguments.model, dtype, arguments.clock)
        for length in arguments.prompt:
            prompt = random.Random(length).choices(range(2, vocab), k=length)
            compare(kvsim, baseline, dtype, prompt, arguments.steps, arguments.pairs)


if __name__ == "__main__":
    main()
