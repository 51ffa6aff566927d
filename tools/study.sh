#!/usr/bin/env bash
# Runs every policy at six budgets in both loops on 24 prompts of SmolLM2-135M-Instruct, which tools/model.sh fetches, and writes tables and
# a report with the words of one prompt that each policy forgot; where the model cannot be had, on the small one that is shipped. Installs
# missing packages and builds first. Continues a run that was stopped. Arguments: an output directory (default build/study), then options of
# kvsim study.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/study}
[ $# -eq 0 ] || shift

tools/setup.sh gnuplot-nox python3 python3-pip
cmake --preset release -DKVSIM_TESTS=OFF >&2
cmake --build --preset release --target kvsim >&2
study=analysis/examples/smollm2.json
if ! model=$(tools/model.sh); then
  echo "SmolLM2 could not be fetched: this is a study of the small model that is shipped for tests." >&2
  model=traces/sample/model study=traces/sample/study.json
fi
build/release/kvsim study "$study" --model "$model" -o "$out" --resume "$@"
if [ -f "$out/report.html" ]; then # it has a link to the words of one prompt that each policy forgot
  item=needle-multi-key-1000-s1-0
  build/release/kvsim capture --model "$model" --workload "$out/prompts.jsonl" --item $item --max-new-tokens 8 --ignore-eos \
    --quiet --overwrite -o "$out/$item.h5"
  build/release/kvsim report "$out" --view "$out/$item.h5" --overwrite
fi
