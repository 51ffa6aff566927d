#!/usr/bin/env python3
"""Runs benchmarks and compares their ratios with those of a committed run: what tools/bench.sh does.

Every benchmark here measures a candidate and its baseline in turns, in one process, and prints the ratio of their times. Only
ratios are compared: seconds are of one machine at one moment.
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
NAMES = ["replay", "streaming", "hamming", "kvcrush", "optimal_retention", "codecs", "selections", "cost", "capture", "evaluate", "reader",
         "writer", "requests", "libcachesim"]
LIBCACHESIM = "KVSIM_LIBCACHESIM_PYTHON"
GROWN = 1.2
# Where ours stands below the line, a ratio is better the larger it is.
OURS_BELOW = re.compile(r"one by one / together|the same without the prompt's pass|byte per bit / scan|k-means|textbook / ours| / policy$")
# As bench::report (paired.hpp) prints a ratio.
ROW = re.compile(r"^(?P<what>.*?) +(?P<ratio>[\d.]+)x +\((?P<low>[\d.]+) \.\. (?P<high>[\d.]+)\) +(?P<took>[\d.]+) ms against +(?P<base>[\d.]+) ms$")


def processor() -> str:
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    return f"{names[0] if names else 'unknown processor'}, {len(names)} threads"


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
    asked = parser.parse_args()
    for name in asked.benchmark:
        if name not in NAMES:
            parser.error(f"no benchmark {name}: there are {', '.join(NAMES)}")
    known = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {"machine": "", "version": "", "ratios": {}}
    results = {name: run(found, name) for name in asked.benchmark or NAMES if (found := command(asked.build, name))}
    version = subprocess.run([asked.build / "kvsim", "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
    print(f"{version}, {processor()}, {datetime.date.today()}\n")
    print(table(results, known["ratios"]))
    if known["machine"] and known["machine"] != processor():
        print(f"\nBefore: {known['version']} on another machine, {known['machine']}.")
    for line in worse(results, known["ratios"]):
        print(f"warning: worse by more than a fifth: {line}", file=sys.stderr)
    if asked.write:
        kept = {**known["ratios"], **results} if known["machine"] == processor() else results
        text = json.dumps({"machine": processor(), "version": version, "ratios": {name: kept[name] for name in NAMES if name in kept}}, indent=1)
        BASELINE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
