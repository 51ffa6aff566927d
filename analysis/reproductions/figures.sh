#!/usr/bin/env bash
# Asks on the shipped model what figures of papers ask (findings.toml beside this file). Run it in an empty folder with kvsim on the PATH.
# Arguments: names of figures, such as xkv_importance. Each leaves a study in a folder of its name and draws what the page shows.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sample=$here/../../traces/sample/model

study() {
  kvsim study "$here/$1.json" -o "$1" --quiet
}

xkv_importance() {
  study xkv_importance
  kvsim analyze importance xkv_importance/traces/*.h5 --bins 0 -o importance.csv
  kvsim analyze retention-size xkv_importance/traces/*.h5 --pool 1 -o plain.csv
  kvsim plot importance xkv_importance -o xkv_importance.svg
}

xkv_retention() {
  study xkv_retention
  kvsim plot retention xkv_retention -o xkv_retention.svg
  kvsim plot retention-layers xkv_retention -o xkv_retention_layers.svg
}

xkv_allocation() {
  study xkv_allocation
  kvsim plot allocation xkv_allocation -o xkv_allocation.svg
  kvsim analyze allocation xkv_allocation/traces/*.h5 --policies xkv --budget 5%
  # The split of one prompt, for two others of its kind.
  kvsim allocate xkv_allocation/traces/needle-1000-s1-0.h5 --policy xkv --budget 10% -o needle-shares.json
  local scores='snapkv(window=8,pool=avg:7,unit=layer)'
  kvsim replay xkv_allocation/traces/needle-1000-s1-1.h5 xkv_allocation/traces/needle-1000-s1-2.h5 --budget 10% \
    --policy "$scores+pyramid" --policy "$scores" --policy "$scores+fixed(shares=needle-shares.json)" --policy xkv
}

xkv_orderings() {
  study xkv_orderings
  kvsim plot quality xkv_orderings --metric evidence_loss -o xkv_orderings.svg
}

kvcrush_grid() {
  study kvcrush_grid
}

hashevict_loss() {
  study hashevict_loss
  kvsim plot quality hashevict_loss -o hashevict_loss.svg
}

hashevict_ranking_loss() {
  study hashevict_ranking_loss
  kvsim plot ranking-loss hashevict_ranking_loss -o hashevict_ranking_loss.svg
  kvsim plot cumulative-loss hashevict_ranking_loss -o hashevict_cumulative_loss.svg
  kvsim analyze key-norms hashevict_ranking_loss/traces/*.h5
}

hashevict_correlation() {
  study hashevict_correlation
  kvsim plot hash hashevict_correlation -o hashevict_correlation.svg
}

hashevict_heads() {
  study hashevict_heads
  kvsim plot hash hashevict_heads/tables/hash.csv -o hashevict_heads.svg
  kvsim analyze hash hashevict_heads/traces/*.h5 --projections 3 --skip 1 --per layer
}

hashevict_bits() {
  study hashevict_bits
  kvsim plot differences hashevict_bits --metric attention_loss -o hashevict_bits.svg
}

scissorhands_persistence() {
  study scissorhands_persistence
  kvsim plot persistence scissorhands_persistence -o scissorhands_persistence.svg
  kvsim analyze persistence scissorhands_persistence/traces/*.h5
  kvsim analyze persistence scissorhands_persistence/traces/*.h5 --times 10
  kvsim analyze persistence scissorhands_persistence/traces/*.h5 --split prompt --early-rows 64
}

a2sf_cosine() {
  study a2sf_cosine
  kvsim plot matrix a2sf_cosine --budget 20% --metric oracle_cosine -o a2sf_cosine.svg
}

kivi_axes() {
  study kivi_axes
  kvsim export kivi_axes --table means
}

scbench_turns() {
  kvsim workload conversation --context 600 --facts 4 --count 192 --tokenizer "$sample" -o talks.jsonl
  local ask=(kvsim evaluate --model "$sample" --workload talks.jsonl --budget 10%,25%,50% --mode greedy --max-new-tokens 1 --quiet
    --policy full,snapkv,pyramidkv,h2o,tova,streaming_llm,l2_norm,keydiff --policy 'keydiff(window=4)')
  "${ask[@]}" --cut prompt,question --turns golden -o kept.csv
  "${ask[@]}" --cut prompt --turns requests -o anew.csv  # tokens are chosen anew for each question
  python3 "$here/turns_accuracy.py" kept.csv
  python3 "$here/turns_accuracy.py" anew.csv
}

question_unknown() {
  study question_unknown
  python3 "$here/order_agreement.py" question_unknown/tables/means.csv
  kvsim plot cuts question_unknown -o question_unknown.svg
}

for name in "$@"; do "$name"; done
