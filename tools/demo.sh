#!/usr/bin/env bash
# Shows the main use on SmolLM2-135M-Instruct, which tools/model.sh fetches while kvsim is built; where it cannot be had, on the small model
# that is shipped. Installs missing packages, builds, hides facts in texts, lets the model answer through the caches of policies that did not
# know the question, records it while it reads one of the texts, replays what each policy lost, and shows the words that each forgot. Says
# before each table what it shows.
# Argument: an output directory (default build/demo).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/demo}

tools/setup.sh python3 python3-pip
mkdir -p "$out"
tools/model.sh >"$out/model" &
fetching=$!
cmake --preset release -DKVSIM_TESTS=OFF -DKVSIM_REQUESTS=OFF >&2
cmake --build --preset release --target kvsim >&2

kvsim=build/release/kvsim
if wait "$fetching"; then
  model=$(cat "$out/model")
else
  echo "SmolLM2 could not be fetched: these are answers of the small model that is shipped for tests, and not what a real one says."
  model=traces/sample/model
fi
item=needle-multi-key-1000-s1-12
say() { printf '\n'; printf '%s\n' "$@"; }
run() { # prints a command as a shell reads it, then runs it
  local word line='$'
  for word; do
    case $word in
      '' | *[!A-Za-z0-9_./:%,@+=-]*) line+=" '${word//\'/\'\\\'\'}'" ;;
      *) line+=" $word" ;;
    esac
  done
  echo "$line" >&2
  "$@"
}

say "1. Eight facts such as << monkey teal >> are hidden in each of 24 texts of 1,000 tokens. Each ends with a question: << monkey"
run "$kvsim" workload needle-multi-key --facts 8 --context 1000 --count 24 --tokenizer "$model" --overwrite -o "$out/keys.jsonl"

say "2. Who still answers? Five policies evict before the question is known; then the model answers all 24 through what they left." \
  "right: share of right answers, with its interval; agreement: tokens of eight that are the full cache's, before the first that is not;" \
  "evidence held: share of the fact still in the cache; held bytes: of the cache; the losses are shares of attention on evicted tokens:" \
  "on the fact (evidence), where it stands out (peak), on everything (attention). README.md explains each column."
run "$kvsim" evaluate --model "$model" --workload "$out/keys.jsonl" --cut question --budget 25%,50% --policy keydiff+adakv \
  --policy keydiff --policy lagkv --policy tova --policy snapkv --losses --mode greedy --quiet

say "3. The model reads the text that asks for << purse with its full cache, and goes on; the trace keeps its queries, keys and values:"
run "$kvsim" capture --model "$model" --workload "$out/keys.jsonl" --item "$item" --max-new-tokens 8 --output-weights \
  --overwrite -o "$out/item.h5"

say "4. What did they lose of the recorded run? One pass replays them, with the question known (prompt) and not known (question)." \
  "loss oracle, over oracle: what any choice of as many tokens would lose at least, and what the policy loses beyond it;" \
  "r: importance kept; isr: the same per log2 of the tokens kept."
run "$kvsim" replay "$out/item.h5" --cut prompt,question --budget 10%,50% --policy full --policy keydiff+adakv --policy keydiff \
  --policy lagkv --policy tova --policy snapkv --policy 'snapkv(window=8,unit=layer)+xkv' --policy random --quiet

say "5. Which words did they forget? A page with the text under each policy and what the model answers, budgets and steps as sliders:"
run "$kvsim" view "$out/item.h5" --policy keydiff+adakv,keydiff,lagkv,tova,snapkv,streaming_llm --budget 5%,10%,25%,50% \
  --cut question,prompt --model "$model" --workload "$out/keys.jsonl" --overwrite -o "$out/view.html" --quiet

say "page:    $out/view.html" "prompts: $out/keys.jsonl" "trace:   $out/item.h5    (look: $kvsim trace info $out/item.h5)"
say "Next:" \
  "  the same answers when the policies know the question:" \
  "    $kvsim evaluate --model $model --workload $out/keys.jsonl --cut prompt --budget 10% --policy keydiff --policy snapkv --policy xkv" \
  "  what a policy does, and by which paper:" \
  "    $kvsim policy show keydiff" \
  "  every policy and oracle on 24 prompts of four kinds, with intervals and a report:" \
  "    tools/study.sh"
