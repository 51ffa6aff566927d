#!/usr/bin/env python3
"""What policies written in Python cost beside built-in ones: medians of 7 pairs (range), which take turns in one process.

Needs the package (pip install .), 4,096 tokens of a synthetic trace, one thread:  tests/bench/bench_python.py
"""
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

import kvsim

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from written_policies import MyH2o, MySnap  # noqa: E402 - after the path to it


def seconds(trace, policy, budgets):
    began = time.perf_counter()
    kvsim.replay(trace, [policy], budgets, threads=1, progress=False)
    return time.perf_counter() - began


def ratio(what, trace, mine, built_in, budgets):
    pairs = [(seconds(trace, mine, budgets), seconds(trace, built_in, budgets)) for _ in range(8)][1:]
    ratios = sorted(a / b for a, b in pairs)
    print(f"{what:<58} {statistics.median(ratios):5.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f})")
    return statistics.median(a - b for a, b in pairs)


def main():
    warnings.simplefilter("ignore", kvsim.Note)
    with tempfile.TemporaryDirectory() as folder:
        decode, layers, kv_heads, group = 64, 2, 2, 4
        trace = kvsim.generate(f"{folder}/t.h5", prompt_tokens=4096 - decode, decode=decode, layers=layers, kv_heads=kv_heads,
                               group=group, head_dim=128)
        ratio("SnapKV in Python / built-in, one cell", trace, MySnap, "snapkv", 0.25)
        ratio("the same at 8 budgets", trace, MySnap, "snapkv", [n / 20 for n in range(1, 9)])
        more = ratio("H2O in Python / built-in, one cell", trace, MyH2o, "h2o(recent=0)", 0.25)
        steps = decode * layers * kv_heads
        print(f"a call of observe(), with 1,008 slots: {1e6 * more / steps:.0f} microseconds")


if __name__ == "__main__":
    main()
