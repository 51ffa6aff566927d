#!/usr/bin/env bash
# Runs the fuzz targets and prints what they did: tests/fuzz/run.sh MINUTES|COUNTx [TARGET ...]. As many run at once as there are
# processors. Fails if one found something; build/fuzz/found/TARGET has the inputs.
#   run.sh 60       all targets share an hour. What is new in coverage stays in build/fuzz/corpus/TARGET, from which the
#                   next run goes on.
#   run.sh 2000x    each target reads 2,000 inputs, the same ones in every run of a commit (nearly, for the four that read
#                   HDF5): what CI runs, so that a red run says something of this commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

much=${1:?"how many minutes or inputs, e.g. tests/fuzz/run.sh 1 or tests/fuzz/run.sh 2000x"}
shift
cmake --preset fuzz -DKVSIM_TESTS=ON >/dev/null
cmake --build --preset fuzz >&2
build=$root/build/fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$build/fuzzers")
# Those whose inputs are HDF5 start a process for each, and would end alone.
of_hdf5='^(trace|results_hdf5|external_scores|decisions|calibration)$'
mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sed -E "/$of_hdf5/!s/^/~/" | LC_ALL=C sort | tr -d '~')
if [[ $much == *x ]]; then
  # A crash ends the target. Where addresses are random, so is what libFuzzer learns from comparisons.
  fixed=(); ! setarch -R true 2>/dev/null || fixed=(setarch -R)
  how=("${fixed[@]}" FUZZER -seed=1 -runs="${much%x}")
else
  # A crash ends one job, not the run: libFuzzer starts another.
  how=(FUZZER -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1
    -max_total_time="$(/usr/bin/python3 -c "print(max(1, int($much * 60 * $(nproc) / ${#targets[@]})))")")
fi
scratch=$build/scratch  # one name: paths are compared and hashed, too
rm -rf "$scratch"
trap 'rm -rf "$scratch"' EXIT

fuzz() {
  local target=$1 corpus=$build/corpus/$1 found=$build/found/$1 largest
  shift
  [[ $* != *-runs=* ]] || corpus=$scratch/$target/corpus
  rm -rf "$found"
  mkdir -p "$corpus" "$found" "$scratch/$target"
  largest=$(stat -c %s "$root/tests/fuzz/corpus/$target"/* | sort -n | tail -1)
  cd "$scratch/$target"
  # An input that takes ten seconds or 2 GB is a find, too. The process that walks an HDF5 file first may compute for 60
  # seconds (sim/base/isolated_run.hpp).
  local patience=10
  ! [[ $target =~ $of_hdf5 ]] || patience=100
  TMPDIR=$scratch/$target "${@/#FUZZER/$build/fuzzers/$target}" -timeout=$patience -rss_limit_mb=2048 -malloc_limit_mb=1048576 -max_len=$((largest > 1024 ? 2 * largest : 2048)) \
    -dict="$root/tests/fuzz/dictionaries/$target.dict" -artifact_prefix="$found/" \
    "$corpus" "$root/tests/fuzz/corpus/$target" >"$scratch/$target.log" 2>&1 || true
}
export -f fuzz
export root build scratch of_hdf5
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {} "$@"' fuzz "${how[@]}"
/usr/bin/python3 tests/fuzz/table.py "$scratch" "$build" "${targets[@]}"
