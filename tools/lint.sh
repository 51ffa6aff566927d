#!/usr/bin/env bash
# Checks formatting and runs static analysis, as configured in .clang-format and .clang-tidy. Arguments: files (default: all).
# Needs clang-format and clang-tidy 14.
set -euo pipefail
cd "$(dirname "$0")/.."

files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files '*.cpp' '*.hpp')
clang-format --dry-run -Werror "${files[@]}"
sources=()
for file in "${files[@]}"; do
  [[ $file == *.cpp ]] && sources+=("$file")
done
[ ${#sources[@]} -eq 0 ] && exit
cmake --preset dev >&2  # it says how each file is compiled by itself
clang-tidy --quiet -p build/dev "${sources[@]}"
