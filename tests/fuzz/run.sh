#!/usr/bin/env bash
# Runs the fuzz targets and prints what they did: tests/fuzz/run.sh MINUTES [TARGET ...]. All targets share the time; as many
# run at once as there are processors. Fails if one found something; build/fuzz/found/TARGET has the inputs. What is new
# in coverage stays in build/fuzz/corpus/TARGET, from which the next run goes on.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

minutes=${1:?"how many minutes, e.g. tests/fuzz/run.sh 1"}
shift
cmake --preset fuzz -DKVSIM_TESTS=ON >/dev/null
cmake --build --preset fuzz >&2
build=$root/build/fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$build/fuzzers")
seconds=$(/usr/bin/python3 -c "print(max(1, int($minutes * 60 * $(nproc) / ${#targets[@]})))")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fuzz() {
  local target=$1 corpus=$build/corpus/$1 found=$build/found/$1 largest
  rm -rf "$found"
  mkdir -p "$corpus" "$found" "$scratch/$target"
  largest=$(stat -c %s "$root/tests/fuzz/corpus/$target"/* | sort -n | tail -1)
  cd "$scratch/$target"
  # A crash ends one job, not the run: libFuzzer starts another. An input that takes ten seconds or 2 GB is a find, too.
  TMPDIR=$scratch/$target "$build/fuzzers/$target" -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1 \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1048576 -max_len=$((largest > 1024 ? 2 * largest : 2048)) \
    -dict="$root/tests/fuzz/dictionaries/$target.dict" -artifact_prefix="$found/" \
    "$corpus" "$root/tests/fuzz/corpus/$target" >"$scratch/$target.log" 2>&1 || true
}
export -f fuzz
export root build scratch seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
/usr/bin/python3 tests/fuzz/table.py "$scratch" "$build" "${targets[@]}"
