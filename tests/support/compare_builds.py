#!/usr/bin/python3
"""Fails unless two builds of kvsim write the same bytes: compare_builds.py KVSIM OTHER_KVSIM.

Each command below is run with both builds, in a folder of its own. Everything they write is compared: traces, rows of
every scope, decisions, answers of the closed loop, figures, costs. Both builds must be for this processor.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "traces/sample/model"
GOLDEN = ROOT / "tests/golden/capture"
BUDGETS = "5%,10%,25%,50%,75%"
QUIET = ("--quiet", "--threads", 2)


def commands():
    """The commands, in order: later ones read what earlier ones wrote."""
    yield ("workload", "needle-multi-key", "--facts", 4, "--context", 300, "--count", 2, "--seed", 3, "--tokenizer", MODEL,
           "-o", "prompts.jsonl")
    for index in (0, 1):
        yield ("capture", "--model", MODEL, "--workload", "prompts.jsonl", "--item", f"needle-multi-key-300-s3-{index}",
               "--max-new-tokens", 8, "--ignore-eos", "--output-weights", "-o", f"run{index}.h5", *QUIET)
    yield ("capture", "--model", MODEL, "--prompt", ROOT / "traces/sample/prompts/copy-0500.txt", "--max-new-tokens", 16,
           "--temperature", 0.8, "--seed", 5, "--attention", "window:32", "--queries", "window:64", "-o", "slim.h5", *QUIET)
    for model in sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "config.json").exists()):
        yield ("capture", "--model", GOLDEN / model, "--tokens", "ids.json", "--max-new-tokens", 6,
               "--ignore-eos", "--column-statistics", "-o", f"{model}.h5", *QUIET)
    yield ("trace", "generate", "--layers", 2, "--prompt-tokens", 300, "--decode", 24, "--elem", "bf16", "-o", "made.h5")
    for scope in ("all", "layer", "head", "step"):
        yield ("replay", "run0.h5", "run1.h5", "made.h5", "slim.h5", "--policy", "all", "--policy", "oracles",
               "--budget", BUDGETS if scope == "all" else "10%,50%", "--per", scope, "--format", "csv",
               "-o", f"{scope}.csv", *QUIET)
    yield ("replay", "run0.h5", "run1.h5", "--policy", "all", "--policy", "oracles", "--budget", BUDGETS,
           "--cut", "prompt,question", "--bounds", "--format", "csv", "-o", "cuts.csv", *QUIET)
    yield ("replay", "run0.h5", "--policy", "h2o", "--policy", "snapkv", "--budget", "25%", "--machine", "a100-80-sxm",
           "--decisions", "kept.h5", "--format", "json", "-o", "costs.json", *QUIET)
    stored = [word for part in ("full+kivi", "h2o+scalar(group=32)", "snapkv+fp8", "full+q8_0", "h2o+q4_0")
              for word in ("--policy", part)]
    yield ("replay", "run0.h5", "made.h5", *stored, "--budget", "25%,50%", "--cut", "prompt,100", "-o", "stored.csv", *QUIET)
    codes = [word for part in ("full+quantspec(group=16)", "full+int8", "full+nvfp4", "full+saq", "full+block_float", "full+rotatekv", "full+qjl", "full+turboquant", "full+cachegen",
                               "cachegen.paper", "full+minicache(bits=4)", "streaming_llm+compensation",
                               "full+minicache", "full+shadowkv_keys", "full+mikv", "full+zipcache", "full+gear", "full+think", "h2o+cam",
                               "h2o+ems_merge", "h2o+fixed_kernel_merge", "h2o+d2o_merge", "h2o+kvmerger_merge")
             for word in ("--policy", part)]
    yield ("replay", "run0.h5", *codes, "--budget", "25%", "-o", "codes.csv", *QUIET)
    read = [word for part in ("quest(read=20%,page=4,dense=0)", "tidal(read=10%)", "double_sparsity", "sparq", "pqcache", "a2ats(centres=64)",
                              "triforce(read=64)", "rekv(read=128,block=16)", "retrieval(index=graph)", "retrieval(index=ivf)", "random_by_distance",
                              "kivi+quest(read=20%,page=4,dense=0)")
            for word in ("--policy", "full+" + part)]
    yield ("replay", "run0.h5", *read, "--policy", "h2o+top_tokens(read=10%)", "--budget", "50%", "--cut", "prompt,question",
           "-o", "read.csv", *QUIET)
    for cut in ("prompt", "question"):
        yield ("evaluate", "--model", MODEL, "--workload", "prompts.jsonl", "--policy", "all", *stored, "--budget", "25%,50%",
               "--cut", cut, "--losses", "--format", "csv", "-o", f"answers-{cut}.csv", *QUIET)
    yield ("analyze", "hash", "run0.h5", "--format", "csv", "-o", "hash.csv")
    for end in ("svg", "png", "pdf", "csv"):
        yield ("plot", "quality", "all.csv", "-o", f"quality.{end}")


def run(kvsim, folder, command):
    started = time.monotonic()
    done = subprocess.run([kvsim, *map(str, command)], cwd=folder, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{kvsim} {' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr.decode()}")
    return time.monotonic() - started


def hdf5_lines(path):
    """What an HDF5 file holds, a line for each of its parts: all but who wrote it when, and how long passes took."""
    lines = []
    with h5py.File(path) as file:
        def see(name, thing):
            if isinstance(thing, h5py.Dataset):
                if thing.name.endswith("_ns"):
                    return
                stored = np.empty(thing.shape, f"V{thing.id.get_type().get_size()}")
                thing.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=thing.id.get_type())
                lines.append(f"{name} {thing.shape} {hashlib.sha256(stored.tobytes()).hexdigest()}")
            lines.extend(f"{name}@{key} {value!r}" for key, value in thing.attrs.items()
                         if key not in ("file_uuid", "created_utc", "writer", "software"))
        see("", file)
        file.visititems(see)
    return "\n".join(lines).encode()


def content(file):
    return hdf5_lines(file) if file.suffix == ".h5" else file.read_bytes()


def numbers(content):
    """How many numbers of a table were compared; 0 for what is no text."""
    return len(re.findall(rb"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?(?![\w.])", content))


def first_difference(one, other):
    for number, (a, b) in enumerate(zip(one.splitlines(), other.splitlines()), 1):
        if a != b:
            fields = [f"{x.decode(errors='replace')} and {y.decode(errors='replace')}"
                      for x, y in zip(a.split(b","), b.split(b",")) if x != y]
            return f"line {number}: {'; '.join(fields)[:300]}" if fields else f"line {number}"
    return f"{len(one)} and {len(other)} bytes"


def main():
    builds = [pathlib.Path(argument).resolve() for argument in sys.argv[1:3]]
    different, compared, values = [], 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folders = [pathlib.Path(scratch, name) for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
            (folder / "ids.json").write_text(str(list(range(3, 43))))
        for command in commands():
            before = set(os.listdir(folders[0]))
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                seconds = list(pool.map(run, builds, folders, [command] * 2))
            print(f"{seconds[0]:6.1f} s {seconds[1]:6.1f} s  {' '.join(map(str, command))[:120]}", file=sys.stderr)
            for name in sorted(set(os.listdir(folders[0])) - before):
                one, other = (content(folder / name) for folder in folders)
                compared += 1
                values += numbers(one) if name.endswith((".csv", ".json")) else 0
                if one != other:
                    different.append(f"{name} of {' '.join(map(str, command))}: {first_difference(one, other)}")
    for difference in different:
        print(difference, file=sys.stderr)
    print(f"{compared} outputs with {values} numbers in tables, {len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
