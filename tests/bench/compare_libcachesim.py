#!/usr/bin/env python3
"""Compares prefix caches in independent-block mode with libCacheSim, hit for hit, on the same stream of blocks.

    pip install libcachesim
    compare_libcachesim.py build/release/tests/bench_requests traces/sample/requests/mooncake_conversation.jsonl.gz

Prints a table and fails where a number of hits differs. Seconds are of both in turn, on one core; libCacheSim is driven
by its own reader (process_trace on a binary file of the same stream), so that no time is Python's.
"""
import gzip
import json
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


def blocks_of(path):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as lines:
        for line in lines:
            yield from json.loads(line)["hash_ids"]


def theirs(kind, capacity, blocks, requests):
    cache = kind(cache_size=capacity, hashpower=18)
    begin = time.perf_counter()
    hits = 0
    for request in requests:
        hits += cache.get(request)
    return hits, time.perf_counter() - begin


def by_reader(kind, capacity, path):
    """Seconds of libCacheSim's own loop, and the hits that it reports."""
    reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE)
    cache = kind(cache_size=capacity, hashpower=18)
    begin = time.perf_counter()
    misses, _ = cache.process_trace(reader)
    return misses, time.perf_counter() - begin


def main():
    bench, trace = sys.argv[1:3]
    blocks = list(blocks_of(trace))
    requests = []
    for i, block in enumerate(blocks):
        request = lcs.Request()
        request.obj_id, request.obj_size, request.clock_time = block, 1, i
        requests.append(request)
    rows = subprocess.run([bench, trace, "independent", ",".join(name for name, _ in PAIRS), ",".join(map(str, CAPACITIES))],
                          check=True, capture_output=True, text=True).stdout.split("\n")
    ours = {(row.split()[0], int(row.split()[1])): row.split()[2:] for row in rows if row}
    different = 0
    with tempfile.NamedTemporaryFile(suffix=".oracleGeneral.bin") as stream:
        for i, block in enumerate(blocks):
            stream.write(struct.pack("<IQIq", i, block, 1, -2))
        stream.flush()
        print("| policy | blocks | hits | libCacheSim | equal | M accesses/s | libCacheSim |\n| --- | --- | --- | --- | --- | --- | --- |")
        for name, kind in PAIRS:
            for capacity in CAPACITIES:
                hits, accesses, seconds = ours[name, capacity]
                their_hits, _ = theirs(kind, capacity, blocks, requests)
                _, loop = by_reader(kind, capacity, stream.name)
                different += int(hits) != their_hits
                print(f"| {name} | {capacity} | {hits} | {their_hits} | {'yes' if int(hits) == their_hits else 'NO'} | "
                      f"{int(accesses) / float(seconds) / 1e6:.1f} | {len(blocks) / loop / 1e6:.1f} |")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
