#!/usr/bin/env bash
# Runs the whole comparison on the shipped sample: installs missing packages, builds, captures 24 runs of four workloads,
# replays every policy at six budgets on each, lets the model answer through it and writes the report. Continues a run that
# was stopped. Arguments: an output directory (default build/study), then options of kvsim study.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/study}
[ $# -eq 0 ] || shift

tools/setup.sh gnuplot-nox
cmake --preset release -DKVSIM_TESTS=OFF >&2
cmake --build --preset release --target kvsim >&2
build/release/kvsim study traces/sample/study.json -o "$out" --resume "$@"
if [ -f "$out/report.html" ]; then # it has a link to the words of one prompt that each policy forgot
  item=needle-multi-key-1000-s1-0
  build/release/kvsim capture --model traces/sample/model --workload "$out/prompts.jsonl" --item $item --max-new-tokens 32 --ignore-eos \
    --quiet --overwrite -o "$out/$item.h5"
  build/release/kvsim report "$out" --view "$out/$item.h5" --overwrite
fi
