#!/usr/bin/env python3
"""What two ranks gain: a study by one process with one thread, and by two ranks of mpirun with one thread each, in turns.

Usage: bench_ranks.py KVSIM [STUDY.json] [PAIRS]

The first ratio is of wall time and means something only on a machine with two idle cores. The second is of processor time: all
of the one process / of the busier rank, which is what the wall time would be if no other program ran.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# bash's own `time` counts gnuplot and whatever else a process has started.
TIMED = 'TIMEFORMAT="processor %U %S"; time "$@"'
LAUNCHED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_plm": "isolated"}


def run(before, command):
    """Wall seconds, and processor seconds of each process, the largest last."""
    began = time.monotonic()
    done = subprocess.run([*before, "bash", "-c", TIMED, "bash", *command], env={**os.environ, **LAUNCHED}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    wall = time.monotonic() - began
    return wall, sorted(float(user) + float(system) for user, system in re.findall(r"processor (\S+) (\S+)", done.stderr))


def shown(what, ratios):
    print(f"{what:<58} {statistics.median(ratios):5.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")


def main(kvsim, study=SOURCE / "analysis/examples/answers.json", pairs=3):
    walls, processor, extra = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(int(pairs)):
            command = [str(kvsim), "study", str(study), "--threads", "1", "--quiet", "-o"]
            one, (alone,) = run([], [*command, f"{folder}/one{pair}"])
            two, ranks = run(["mpirun", "-n", "2"], [*command, f"{folder}/two{pair}"])
            subprocess.run(["diff", "-r", f"{folder}/one{pair}", f"{folder}/two{pair}"], check=True)
            print(f"one process {one:.1f} s, of a processor {alone:.1f} s; two ranks {two:.1f} s, of processors " +
                  " and ".join(f"{rank:.1f} s" for rank in ranks), flush=True)
            walls.append(one / two)
            processor.append(alone / ranks[-1])
            extra.append(sum(ranks) / alone)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    shown("wall time, one process / two ranks", walls)
    shown("processor time, one process / the busier of two ranks", processor)
    shown("processor time, both ranks together / one process", extra)


if __name__ == "__main__":
    main(*sys.argv[1:])
