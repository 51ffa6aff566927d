#!/usr/bin/env bash
# Builds kvsim with Clang 14, compares every byte it writes with what the build of GCC writes (build/release, made by
# tools/test.sh), and lets each fuzz target read 2,000 changed inputs, the same ones in every run of a commit. With --build it only compiles.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh --tests clang-14 libclang-rt-14-dev
# What computes is optimised as ever; what only reads, names and draws is not, which halves the time and leaves the comparison as it is.
cmake --preset clang -DKVSIM_TESTS=OFF -DKVSIM_LIGHT=-O0 >&2
cmake --build --preset clang --target kvsim >&2
if [ "${1:-}" = --build ]; then
  cmake --preset fuzz -DKVSIM_TESTS=ON >&2
  cmake --build --preset fuzz >&2
  exit
fi
# Clang 14 compiles no matrix tiles.
KVSIM_TILES=0 /usr/bin/python3 tests/support/compare_builds.py build/release/kvsim build/clang/kvsim
tests/fuzz/run.sh 2000x
