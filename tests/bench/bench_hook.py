#!/usr/bin/env python3
"""The Hugging Face hook: generate() traced against generate() alone, in the same process, turn about.

    python3 tests/bench/bench_hook.py [MODEL_OR_DIR] [--prompt-tokens N] [--new-tokens N] [--rounds N] [--device D] ...

Prints the median time of each and the median of the paired ratios, for the prompt's call and per decoded token, and what
went to disk. Needs torch, transformers and h5py.
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from kvsim.hf import trace  # noqa: E402 - after the path to it


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(ROOT / "traces/sample/model"))
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--queries", default="all")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def synchronised(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(model, ids, new_tokens, device):
    """(the prompt's call, one decoded token)"""
    def run(count):
        begin = synchronised(device)
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                       min_new_tokens=count, pad_token_id=0)
        return synchronised(device) - begin

    prompt = run(1)
    return prompt, (run(new_tokens + 1) - prompt) / new_tokens


def main():
    options = parse_arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model).to(getattr(torch, options.dtype))
    model = model.to(options.device).eval()
    vocabulary = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(1)
    alone, traced, bytes_written, closing = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.h5")
        for _ in range(options.rounds + 1):
            # New tokens every time: a trace stores what it has seen only once.
            ids = torch.randint(3, vocabulary, (1, options.prompt_tokens), generator=generator).to(options.device)
            alone.append(seconds(model, ids, options.new_tokens, options.device))
            recording = trace(model, path, queries=options.queries, overwrite=True)
            with recording:
                prompt_begin = synchronised(options.device)
                model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=1, pad_token_id=0)
                prompt = synchronised(options.device) - prompt_begin
                other = torch.randint(3, vocabulary, ids.shape, generator=generator).to(options.device)
                begin = synchronised(options.device)
                model.generate(other, attention_mask=torch.ones_like(other), do_sample=False,
                               max_new_tokens=options.new_tokens + 1, min_new_tokens=options.new_tokens + 1, pad_token_id=0)
                both = synchronised(options.device) - begin
                end = synchronised(options.device)
            closing.append(synchronised(options.device) - end)
            traced.append((prompt, (both - prompt) / options.new_tokens))
            bytes_written.append(os.path.getsize(path))
    for name, index in (("prompt", 0), ("per token", 1)):
        pairs = [(a[index], t[index]) for a, t in zip(alone, traced)][1:]  # the first round warms up
        print(f"{name:10} alone {statistics.median(a for a, _ in pairs) * 1e3:9.2f} ms   "
              f"traced {statistics.median(t for _, t in pairs) * 1e3:9.2f} ms   "
              f"ratio {statistics.median(t / a for a, t in pairs):.3f}")
    print(f"{'closing':10} {statistics.median(closing[1:]) * 1e3:9.2f} ms for {bytes_written[-1] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
