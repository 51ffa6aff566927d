#!/usr/bin/env bash
# Builds and runs the benchmarks on an otherwise idle machine: one table of ratios, and warnings of those that are a fifth worse than in
# tests/bench/baseline.json. tools/bench.sh [--write|--committed] [replay codecs ...]; --help says more.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ " $* " == *" --help "* || " $* " == *" -h "* || " $* " == *" --committed "* ]] || {
  tools/setup.sh --tests
  cmake --preset release -DKVSIM_TESTS=ON -DKVSIM_REQUESTS=ON >&2
  cmake --build --preset release >&2
}
exec /usr/bin/python3 tests/bench/table.py "$@"
