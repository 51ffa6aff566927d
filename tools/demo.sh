#!/usr/bin/env bash
# Shows the main use on the shipped sample: installs missing packages, builds, hides facts in texts, records the model while it reads one
# of them, lets it answer through the caches of policies that did not know the question, and replays what each of them lost. Says before
# each table what it shows. Argument: an output directory (default build/demo).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/demo}

tools/setup.sh
cmake --preset release -DKVSIM_TESTS=OFF >&2
cmake --build --preset release --target kvsim >&2
mkdir -p "$out"

kvsim=build/release/kvsim
model=traces/sample/model
item=needle-multi-key-1000-s1-0
say() { printf '\n'; printf '%s\n' "$@"; }
run() { # prints a command, then runs it
  echo "\$ $*" >&2
  "$@"
}

say "1. Eight facts such as << monkey teal >> are hidden in each of 24 texts of 1,000 tokens. Each ends with a question: << monkey"
run "$kvsim" workload needle-multi-key --facts 8 --context 1000 --count 24 --tokenizer "$model" --overwrite -o "$out/keys.jsonl"
say "The model reads the first of them with its full cache. It answers, and goes on; the trace keeps its queries, keys and values:"
run "$kvsim" capture --model "$model" --workload "$out/keys.jsonl" --item "$item" --max-new-tokens 8 --output-weights \
  --overwrite -o "$out/item.h5"

say "2. Who still answers? Five policies evict before the question is known; then the model answers all 24 through what they left." \
  "right: share of right answers, with its interval; agreement: tokens of eight that are the full cache's, before the first that is not;" \
  "evidence held: share of the fact still in the cache; held bytes: of the cache; the losses are shares of attention on evicted tokens:" \
  "on the fact (evidence), where it stands out (peak), on everything (attention). README.md explains each column."
run "$kvsim" evaluate --model "$model" --workload "$out/keys.jsonl" --cut question --budget 10%,50% \
  --policy keydiff --policy lagkv --policy random --policy h2o --policy snapkv --losses --mode greedy --quiet
echo "Attention loss does not rank the answers: at 50 % random loses most of it, and answers more than h2o and snapkv."

say "3. What did they lose of the recorded run? One pass replays them, with the question known (prompt) and not known (question)." \
  "optimal knows the future: no policy that holds to the budget, split evenly, can lose less attention. loss oracle, over oracle: what any choice of as" \
  "many tokens would lose at least, and what the policy loses beyond it; r: importance kept; isr: the same per log2 of the tokens kept."
run "$kvsim" replay "$out/item.h5" --cut prompt,question --budget 10%,50% --policy full --policy keydiff --policy lagkv --policy random \
  --policy h2o --policy snapkv --policy xkv --policy optimal --quiet

say "4. One score, three ways to split the same total over the layers:"
score='snapkv(window=8,pool=avg:7,unit=layer)'
run "$kvsim" replay "$out/item.h5" --policy "$score" --policy "$score+pyramid" --policy "$score+xkv" --budget 10%,25%,50% --quiet

say "5. Every policy and oracle, by layer, as CSV. What cannot run says why:"
run "$kvsim" replay "$out/item.h5" --policy all --policy oracles --cut prompt,question --budget 10%,25%,50% --quiet --per layer \
  --format csv --overwrite -o "$out/results.csv"

say "prompts: $out/keys.jsonl" "trace:   $out/item.h5    (look: $kvsim trace info $out/item.h5)" "results: $out/results.csv"
say "Next:" \
  "  the same answers when the policies know the question:" \
  "    $kvsim evaluate --model $model --workload $out/keys.jsonl --cut prompt --budget 10% --policy keydiff --policy snapkv --policy xkv" \
  "  what a policy does, and by which paper:" \
  "    $kvsim policy show keydiff" \
  "  every policy on 24 prompts of four kinds, with intervals and a report:" \
  "    tools/study.sh"
