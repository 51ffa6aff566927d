#!/usr/bin/env bash
# Installs missing packages, builds, runs the tests, and lists those that were left out at the end, with why and how to run them.
# With --all first, also runs what the documents show and checks their numbers. Other arguments go to ctest: tools/test.sh -L fast
# The tests of the Hugging Face hook need PyTorch: export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

without_pages=(-LE '^pages$')
if [ "${1:-}" = --all ]; then
  without_pages=()
  shift
fi
tools/setup.sh --tests
cmake --preset release -DKVSIM_TESTS=ON -DKVSIM_REQUESTS=ON >&2
cmake --build --preset release >&2
tools/wheel.sh build/release/wheel build/release >&2 ||
  echo "the wheel of the Python package could not be made (it needs packages of PyPI): its tests are left out" >&2
results=$PWD/build/release/tests.xml
status=0
ctest --preset release --no-tests=error --output-junit "$results" "${without_pages[@]}" "$@" || status=$?
/usr/bin/python3 tests/support/left_out.py "$results"
[ ${#without_pages[@]} -eq 0 ] || echo "left out: the commands and numbers of documents: tools/test.sh --all"
exit $status
