#!/usr/bin/python3
"""Prints what a run of the fuzz targets did, for run.sh: table.py LOGS BUILD TARGET... Fails if something was found.

libhdf5 1.10 has known errors in its own parser. An input that ends in them is counted apart and fails nothing.
"""
import pathlib
import re
import subprocess
import sys

logs, build = map(pathlib.Path, sys.argv[1:3])


def in_libhdf5(target, found):
    """Whether the innermost frame that is neither the C library's nor the sanitizer's is libhdf5's."""
    done = subprocess.run([build / "fuzzers" / target, "-timeout=100", "-rss_limit_mb=2048", "-malloc_limit_mb=1048576", found],
                          capture_output=True, text=True, errors="replace", timeout=240)
    for line in re.findall(r"^\s+#\d+ 0x\w+ +(.*)$", done.stderr, re.M):
        if re.search(r"libc\.so|libz\.so|__interceptor|__asan|__sanitizer|fuzzer::|^in (malloc|calloc|realloc|free|mem\w+) ", line):
            continue
        return "libhdf5" in line
    return False


def main():
    bad = 0
    print("| target | executions | edges | features | corpus | found | in libhdf5 |\n|---|---:|---:|---:|---:|---:|---:|")
    for target in sys.argv[3:]:
        log = (logs / f"{target}.log").read_text(errors="replace")
        states = re.findall(r"^#(\d+)(?::|\s+\w+\s) *cov: (\d+) ft: (\d+) corp: (\d+)", log, re.M)
        found = sorted((build / "found" / target).iterdir())
        foreign = [file for file in found if in_libhdf5(target, file)]
        own = [file for file in found if file not in foreign]
        if not states:
            print(f"{target} did not run:\n{log[-2000:]}", file=sys.stderr)
            bad += 1
            continue
        executions, edges, features, corpus = map(int, states[-1])
        print(f"| {target} | {executions:,} | {edges:,} | {features:,} | {corpus:,} | {len(own)} | {len(foreign)} |")
        for file in own:
            print(f"{target}: {file}", file=sys.stderr)
        bad += len(own)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
