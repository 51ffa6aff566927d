#!/usr/bin/env bash
# Installs what is missing, builds, runs every test. Arguments go to ctest: tools/test.sh -L fast
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh
cmake --preset release -DKVSIM_TESTS=ON -DKVSIM_WERROR=ON >&2
cmake --build --preset release >&2
ctest --preset release --no-tests=error "$@"
