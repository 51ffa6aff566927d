#!/usr/bin/env bash
# Installs missing packages, builds, runs every test, and lists the skipped tests at the end, with why and how to run them.
# Arguments go to ctest: tools/test.sh -L fast
# The tests of the Hugging Face hook need PyTorch: export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh --tests
cmake --preset release -DKVSIM_TESTS=ON >&2
cmake --build --preset release >&2
tools/wheel.sh build/release/wheel build/release >&2 ||
  echo "the wheel of the Python package could not be made (it needs packages of PyPI): its tests are left out" >&2
results=$PWD/build/release/tests.xml
status=0
ctest --preset release --no-tests=error --output-junit "$results" "$@" || status=$?
/usr/bin/python3 tests/support/left_out.py "$results"
exit $status
