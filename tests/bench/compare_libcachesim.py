#!/usr/bin/env python3
"""Compares prefix caches in independent-block mode with libCacheSim on the same stream of blocks: hits of every request, and seconds in turns.

    export KVSIM_LIBCACHESIM_PYTHON=$(tools/python_env.sh tests/bench/libcachesim.txt)
    $KVSIM_LIBCACHESIM_PYTHON tests/bench/compare_libcachesim.py build/release/tests/bench_requests TRACE             # every request's hits equal?
    $KVSIM_LIBCACHESIM_PYTHON tests/bench/compare_libcachesim.py build/release/tests/bench_requests TRACE --ratios    # how fast

The first prints a table and fails where a request's number of hits differs. The second prints ratios as every benchmark does: ours and
libCacheSim take turns on one core. libCacheSim is driven by its own reader (process_trace on a binary file of the same
stream), so that no time is Python's; ours includes building the prefix tree, which is where ids become numbers.
"""
import argparse
import gzip
import itertools
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import libcachesim as lcs

# Ours with the parameters under which the rules are the same, and theirs.
PAIRS = [
    ("fifo", lcs.FIFO),
    ("lru", lcs.LRU),
    ("sieve", lcs.Sieve),
    ("s3_fifo(fill=main)", lcs.S3FIFO),
    ("arc", lcs.ARC),
]
CAPACITIES = [100, 1000, 3000, 10000, 30000, 100000]
TIMED = 10000  # blocks
TURNS = 7


def requests_of(path):
    """The blocks of every request."""
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as lines:
        return [json.loads(line)["hash_ids"] for line in lines]


class Ours:
    """bench_requests, which answers a policy and a capacity with accesses, seconds, seconds of building the tree, and hits of every request."""

    def __init__(self, bench, trace):
        self.process = subprocess.Popen([bench, trace, "independent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, policy, capacity):
        self.process.stdin.write(f"{policy} {capacity}\n")
        self.process.stdin.flush()
        accesses, seconds, tree, *hits = self.process.stdout.readline().split()
        return list(map(int, hits)), int(accesses), float(seconds) + float(tree)

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def theirs(kind, capacity, path, accesses):
    """Hits and seconds of libCacheSim's own loop."""
    reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE)
    cache = kind(cache_size=capacity, hashpower=18)
    begin = time.perf_counter()
    misses, _ = cache.process_trace(reader)
    return round(accesses * (1 - misses)), time.perf_counter() - begin


def one_by_one(kind, capacity, requests):
    """Hits of every request, asked for object by object."""
    cache, asked, clock, hits = kind(cache_size=capacity, hashpower=18), lcs.Request(), 0, []
    for blocks in requests:
        hits.append(0)
        for block in blocks:
            asked.obj_id, asked.obj_size, asked.clock_time = block, 1, clock
            hits[-1] += cache.get(asked)
            clock += 1
    return hits


def compare_hits(ours, requests, path):
    different = 0
    print("| policy | blocks | hits | libCacheSim | equal | M accesses/s | libCacheSim |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, kind in PAIRS:
        for capacity in CAPACITIES:
            hits, accesses, seconds = ours(name, capacity)
            their_hits = one_by_one(kind, capacity, requests)
            _, loop = theirs(kind, capacity, path, accesses)
            different += hits != their_hits
            print(f"| {name} | {capacity} | {sum(hits)} | {sum(their_hits)} | {'yes' if hits == their_hits else 'NO'} | "
                  f"{accesses / seconds / 1e6:.1f} | {accesses / loop / 1e6:.1f} |")
    return different


def compare_seconds(ours, path):
    for name, kind in PAIRS:
        hits, accesses, _ = ours(name, TIMED)
        their_hits, _ = theirs(kind, TIMED, path, accesses)
        if abs(sum(hits) - their_hits) > 1:  # of a share of misses, rounded
            sys.exit(f"{name}: {sum(hits)} hits, libCacheSim {their_hits}")
        turns = []
        for turn in range(TURNS):
            pair = {}
            for who in ("ours", "theirs")[::1 if turn % 2 == 0 else -1]:
                pair[who] = ours(name, TIMED)[2] if who == "ours" else theirs(kind, TIMED, path, accesses)[1]
            turns.append((pair["ours"], pair["theirs"]))
        ratios = [a / b for a, b in turns]
        took, base = (1e3 * statistics.median(column) for column in zip(*turns))
        print(f"{f'{name}, {TIMED} blocks, building the tree included / libCacheSim':64} {statistics.median(ratios):6.2f}x  "
              f"({min(ratios):.2f} .. {max(ratios):.2f})   {took:8.1f} ms against {base:8.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("trace", help="in Mooncake's format")
    parser.add_argument("--ratios", action="store_true", help="seconds in turns instead of hits")
    asked = parser.parse_args()
    requests = requests_of(asked.trace)
    ours = Ours(asked.bench, asked.trace)
    with tempfile.NamedTemporaryFile(suffix=".oracleGeneral.bin") as stream:
        for i, block in enumerate(itertools.chain.from_iterable(requests)):
            stream.write(struct.pack("<IQIq", i, block, 1, -2))
        stream.flush()
        different = compare_seconds(ours, stream.name) if asked.ratios else compare_hits(ours, requests, stream.name)
    return 1 if ours.end() or different else 0


if __name__ == "__main__":
    sys.exit(main())
