#!/usr/bin/env python3
"""Runs benchmarks and compares their ratios with those of a committed run: what tools/bench.sh does.

Every benchmark here measures a candidate and its baseline in turns, in one process, and prints the ratio of their times. Only
ratios are compared: seconds are of one machine at one moment. --committed prints what is committed, for the site.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
NAMES = ["replay", "architectures", "streaming", "hamming", "kvcrush", "optimal_retention", "codecs", "selections", "cost", "capture", "decode",
         "evaluate", "reader", "writer", "requests", "libcachesim"]
LIBCACHESIM = "KVSIM_LIBCACHESIM_PYTHON"
GROWN = 1.2
# Where ours stands below the line, a ratio is better the larger it is.
OURS_BELOW = re.compile(r"one by one / together|the same without the prompt's pass|byte per bit / scan|k-means|textbook / ours| / policy$")
# What the site shows of them, and in which words.
SHOWN = {
    "replay": {
        "64 cells (8 policies x 8 budgets), 1 lane, 1 thread / bare QK^T":
            "64 cells (8 policies x 8 budgets) / bare Q K^T product in float (Eigen's), one thread, trace in bf16",
        "64 cells on a trace in f32 / bare QK^T": "the same, trace in f32",
        "64 cells with layer-wide sets (tova), 4 lanes, 1 thread / bare QK^T": "the same, trace in bf16, `tova` with one set for a layer's 4 KV heads",
        "8 cells (8 policies x 1 budget), 1 lane / bare QK^T": "8 cells (8 policies at one budget) / the same product",
        "1 cell (h2o 20%), 1 lane / bare QK^T": "one cell (`h2o`, which sums every prompt row) / the same product",
        "1 cell (h2o 20%) on a trace in f32 / bare QK^T": "the same, trace in f32",
        "1 cell (h2o 20%) at 32K tokens / bare QK^T": "the same at 32,768 tokens, trace in bf16 (one pair)",
        "64 cells / 1 cell (h2o 20%)": "64 cells / one cell",
        "64 cells, 4 lanes, 2 threads / bare QK^T on 2 threads": "64 cells, 4 lanes, two threads / bare Q K^T on two threads",
        "64 cells, 4 lanes: 2 threads / 1 thread": "64 cells, 4 lanes, two threads / one",
        "bare QK^T, 4 lanes: 2 threads / 1 thread": "the bare product, two threads / one",
    },
    "codecs": {
        "h2o+kivi(bits=4) / h2o, 20%": "a cell in 4 bits, `h2o+kivi(bits=4)` / the cell as it comes, 20 %",
        "h2o+kivi(bits=4) / h2o, 8 budgets": "8 such cells, a budget each / 8 as they come",
        "kivi(bits=4) of 4,096 tokens / copying them as floats": "coding 4,096 tokens by `kivi(bits=4)` / copying them as floats",
    },
    "selections": {
        "h2o+quest(read=1024,dense=0) / h2o, 50%": "a cell that reads pages, `h2o+quest(read=1024)` / `h2o`, 50 %",
        "full+quest(read=1024,dense=0) / full":
            "`full+quest(read=1024)` / `full`, which computes attention rows alone: a head's own pages, what they lose and what the best tokens would",
        "quest(read=1024,dense=0): index of 32,768 keys / copying them as floats": "bounds of the pages of 32,768 keys / copying these as floats",
    },
    "streaming": {
        "h2o(feedback=raw,prompt=stream), 2048 slots: sorting / policy": "victim by sorting the scores / `h2o`'s scan, 2,048 slots",
    },
    "hamming": {
        "4194304 slots (32768 KiB), 16 bits, 1 query: scan / adding up the codes": "HashEvict's Hamming scan / adding up the codes, 32 MiB of them",
        "512 slots (4 KiB), 16 bits, 1 query: scan / adding up the codes": "the same, 4 KiB, which the first cache holds",
    },
    "cost": {
        "estimates / steps of the same points added up, one thread": "cost estimates of requests of 512 steps / the same steps added up",
    },
    "requests": {
        "lru at 20 capacities, one pass / one by one": "prefix caches of 20 capacities under `lru` in one pass / one by one, conversation trace",
    },
    "libcachesim": {
        "lru, 10000 blocks, building the tree included / libCacheSim":
            "prefix caches under `lru`, 10,000 unrelated blocks, building the tree included / libCacheSim 0.3.5 in its own loop (`compare_libcachesim.py`)",
        "fifo, 10000 blocks, building the tree included / libCacheSim": "the same under `fifo`",
        "sieve, 10000 blocks, building the tree included / libCacheSim": "the same under `sieve`",
        "s3_fifo(fill=main), 10000 blocks, building the tree included / libCacheSim": "the same under `s3_fifo(fill=main)`",
        "arc, 10000 blocks, building the tree included / libCacheSim": "the same under `arc`",
    },
    "capture": {
        "prefill / its matrix products alone": "prefill of the sample / its bare matrix products",
        "capture (prompt + 64 tokens) / the same run without a trace": "capture / the same run without writing a trace",
        "capture with --queries window:64 / the same run without a trace": "capture with `--queries window:64` / the same",
    },
    "evaluate": {
        "64 cells, one by one / together": "`kvsim evaluate`, 64 cells one by one / together, 1,000 tokens and 8 answers (one thread, 3 pairs)",
        "the same without the prompt's pass": "the same without the prompt's pass, which 64 runs repeat",
        "16 cells that stream the prompt, one by one / together": "16 cells that stream the prompt, one by one / together",
    },
    "reader": {
        "window: deflated trace / as it is": "replay of a deflated trace / of the same as it is: `window`, one thread, 32 KV heads",
        "h2o: deflated trace / as it is": "the same, `h2o`",
    },
}
# As bench::report (paired.hpp) prints a ratio.
ROW = re.compile(r"^(?P<what>.*?) +(?P<ratio>[\d.]+)x +\((?P<low>[\d.]+) \.\. (?P<high>[\d.]+)\) +(?P<took>[\d.]+) ms against +(?P<base>[\d.]+) ms$")


def processor() -> str:
    """Family and model beside the name: virtual machines often say no more than the maker's."""
    cores = [dict(re.findall(r"^(.*?)\s*: (.*)$", core, re.M)) for core in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")]
    cores = [core for core in cores if "model name" in core]
    if not cores:
        return f"unknown processor, {os.cpu_count()} threads"
    core = cores[0]
    return f"{core['model name']} (family {core['cpu family']}, model {core['model']}), {len(cores)} threads"


def command(build: pathlib.Path, name: str) -> list:
    """What runs a benchmark; nothing if what it compares with is not there."""
    if name != "libcachesim":
        return [build / "tests" / f"bench_{name}"]
    python = os.environ.get(LIBCACHESIM)
    if not python or subprocess.run([python, "-c", "import libcachesim"], capture_output=True, check=False).returncode:
        print(f"left out: libcachesim. To have it: export {LIBCACHESIM}=$(tools/python_env.sh tests/bench/libcachesim.txt)", file=sys.stderr)
        return []
    return [python, HERE / "compare_libcachesim.py", build / "tests" / "bench_requests",
            HERE.parents[1] / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--ratios"]


def run(asked: list, name: str) -> dict:
    """The ratios of one benchmark, by what is compared. Shows its output as it comes."""
    rows = {}
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if found := ROW.match(line.rstrip("\n")):
                rows[found["what"]] = {key: float(found[key]) for key in ("ratio", "low", "high")}
    if bench.returncode != 0 or not rows:
        sys.exit(f"bench_{name} ended with {bench.returncode} and {len(rows)} ratios")
    return rows


def table(results: dict, before: dict) -> str:
    lines = ["| | | ratio | before |", "|---|---|---:|---:|"]
    for name, rows in results.items():
        for what, row in rows.items():
            old = before.get(name, {}).get(what)
            lines.append(f"| {name} | {what} | {row['ratio']:.2f} ({row['low']:.2f} .. {row['high']:.2f}) | {old['ratio'] if old else ''} |")
    return "\n".join(lines)


def short(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


def committed(known: dict) -> str:
    """What is committed, as a page."""
    lines = ["# Measured ratios", "", f"{known['version']}, {known['machine']}, {known['date']}:", "", "| | ratio |", "|---|---|"]
    for name, shown in SHOWN.items():
        for what, said in shown.items():
            row = known["ratios"][name][what]
            lines.append(f"| {said} | {short(row['ratio'])} ({short(row['low'])} .. {short(row['high'])}) |")
    return "\n".join(lines)


def worse(results: dict, before: dict) -> list[str]:
    """Ratios that are a fifth worse than before, by all pairs: a busy machine moves single ones."""
    out = []
    for name, rows in results.items():
        for what, row in rows.items():
            old = before.get(name, {}).get(what)
            if not old:
                continue
            less, more = (row, old) if OURS_BELOW.search(what) else (old, row)
            if more["ratio"] > GROWN * less["ratio"] and more["low"] > less["high"]:
                out.append(f"bench_{name}: {what}: {old['ratio']} before, {row['ratio']} now")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs benchmarks, prints their ratios as a table, and warns of those that got worse.")
    parser.add_argument("benchmark", nargs="*", help="which of " + ", ".join(NAMES) + " (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="folder of the build")
    parser.add_argument("--write", action="store_true", help=f"put the ratios into {BASELINE.name}, to be committed")
    parser.add_argument("--committed", action="store_true", help=f"run nothing: print what {BASELINE.name} holds")
    asked = parser.parse_args()
    for name in asked.benchmark:
        if name not in NAMES:
            parser.error(f"no benchmark {name}: there are {', '.join(NAMES)}")
    known = json.loads(BASELINE.read_text(encoding="utf-8"))
    if asked.committed:
        unknown = [what for name, shown in SHOWN.items() for what in shown if what not in known["ratios"].get(name, {})]
        if unknown:
            sys.exit(f"not in {BASELINE}: {unknown}")
        print(committed(known))
        return
    results = {name: run(found, name) for name in asked.benchmark or NAMES if (found := command(asked.build, name))}
    version = subprocess.run([asked.build / "kvsim", "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
    today = str(datetime.date.today())
    print(f"{version}, {processor()}, {today}\n")
    print(table(results, known["ratios"]))
    if known["machine"] != processor():
        print(f"\nBefore: {known['version']} on another machine, {known['machine']}.")
    for line in worse(results, known["ratios"]):
        print(f"warning: worse by more than a fifth: {line}", file=sys.stderr)
    if asked.write:
        kept = {**known["ratios"], **results} if known["machine"] == processor() else results
        known = {"machine": processor(), "version": version, "date": today, "ratios": {name: kept[name] for name in NAMES if name in kept}}
        BASELINE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
