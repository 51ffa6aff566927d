#!/usr/bin/env bash
# Shows the main use on the shipped sample: installs missing packages, builds, captures a real run, replays it under
# well-known policies, and prints the table and the paths of the files. Argument: an output directory (default build/demo).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/demo}

tools/setup.sh
cmake --preset release -DKVSIM_TESTS=OFF >&2
cmake --build --preset release --target kvsim >&2
mkdir -p "$out"

kvsim=build/release/kvsim
run() { # prints a command, then runs it
  echo "\$ $*" >&2
  "$@"
}
run "$kvsim" capture --model traces/sample/model --prompt traces/sample/prompts/needle-2000-one.txt \
  --max-new-tokens 32 --ignore-eos --overwrite -o "$out/needle.h5"
policies=()
for policy in full window streaming_llm l2_norm h2o hashevict kvcrush snapkv pyramidkv xkv optimal; do
  policies+=(--policy "$policy")
done
run "$kvsim" replay "$out/needle.h5" --budget 10%,25%,50% "${policies[@]}"
echo
echo "Eight questions about one of eight facts in a text, answered through the cache of policies that did not know the question:"
run "$kvsim" workload needle-multi-key --facts 8 --context 1000 --count 8 --tokenizer traces/sample/model --overwrite -o "$out/keys.jsonl"
run "$kvsim" evaluate --model traces/sample/model --workload "$out/keys.jsonl" --cut question --budget 10%,25%,50% --quiet \
  --policy full --policy streaming_llm --policy h2o --policy snapkv --policy keydiff --policy l2_norm --policy random
echo
echo "One score, three ways to split the same total over the layers:"
score='snapkv(window=8,pool=avg:7,unit=layer)'
run "$kvsim" replay "$out/needle.h5" --policy "$score" --policy "$score+pyramid" --policy "$score+xkv" --budget 10%,25%,50% --quiet
run "$kvsim" replay "$out/needle.h5" --policy all --policy oracles --budget 10%,25%,50% --quiet --per layer --format csv --overwrite -o "$out/results.csv"

echo
echo "trace:   $out/needle.h5    (look: $kvsim trace info $out/needle.h5)"
echo "results: $out/results.csv"
