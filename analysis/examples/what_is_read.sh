# What selections read and find (analysis/CHOOSING_A_POLICY.md): on runs of the shipped model, and on synthetic traces in which it is
# known where the needles are. A minute.
set -e
kvsim trace generate --prompt-tokens 32K --decode 32 --layers 2 --kv-heads 1 --group 2 --needles 16 --noise 0.3 --drift 0 --elem bf16 -o needles.h5
kvsim workload needle-multi-key --facts 8 --context 2000 --count 2 -o keys.jsonl
kvsim capture --model traces/sample/model --workload keys.jsonl --item needle-multi-key-2000-s1-0 --max-new-tokens 8 --ignore-eos -o keys0.h5 --quiet
kvsim capture --model traces/sample/model --workload keys.jsonl --item needle-multi-key-2000-s1-1 --max-new-tokens 8 --ignore-eos -o keys1.h5 --quiet
kvsim study analysis/examples/what_is_read.json -o what_is_read --quiet
kvsim trace generate --prompt-tokens 8K --decode 64 --layers 1 --kv-heads 1 --head-dim 32 --drift 0 --elem bf16 -o near.h5
kvsim trace generate --prompt-tokens 8K --decode 64 --layers 1 --kv-heads 1 --head-dim 32 --drift 0 --stretch 4 --elem bf16 -o apart.h5
kvsim study analysis/examples/queries_apart.json -o queries_apart --quiet
kvsim replay needles.h5 --cut prompt,question --policy 'full+retrieval(read=4%,sinks=4,recent=32,queries=500)' -o asked.csv --quiet
kvsim replay keys0.h5 keys1.h5 --cut question \
  --policy 'full+tidal(read=16%,dense=0,correction=0)' \
  --policy 'full+tidal(read=16%,dense=0,correction=2)' \
  --policy 'full+tidal(read=16%,dense=0,correction=3)' \
  --policy 'full+tidal(read=16%,dense=1,correction=0)' \
  --policy 'full+tidal(read=16%,dense=1,correction=2)' \
  --policy 'full+tidal(read=16%,dense=1,correction=3)' \
  --policy 'full+top_tokens(read=16%)' -o layers.csv --quiet
kvsim capture --model traces/sample/model --prompt traces/sample/prompts/text-1500.txt --max-new-tokens 4 --ignore-eos -o text.h5 --quiet
kvsim calibrate double_sparsity text.h5 -o channels-text.h5 --quiet
kvsim calibrate double_sparsity keys1.h5 -o channels-keys1.h5 --quiet
kvsim calibrate double_sparsity keys0.h5 -o channels-keys0.h5 --quiet
kvsim calibrate 'a2ats(centres=128,rounds=10)' text.h5 -o codes-text.h5 --quiet
kvsim calibrate 'a2ats(centres=128,rounds=10)' keys1.h5 -o codes-keys1.h5 --quiet
kvsim calibrate 'a2ats(centres=128,rounds=10)' keys0.h5 -o codes-keys0.h5 --quiet
kvsim replay keys0.h5 --cut question \
  --policy 'full+double_sparsity(read=10%,dense=0)' \
  --policy 'full+double_sparsity(read=10%,dense=0,file=channels-text.h5)' \
  --policy 'full+double_sparsity(read=10%,dense=0,file=channels-keys1.h5)' \
  --policy 'full+double_sparsity(read=10%,dense=0,file=channels-keys0.h5,own_traces=allowed)' \
  --policy 'full+a2ats(read=3%,centres=128,rounds=10)' \
  --policy 'full+a2ats(read=3%,centres=128,rounds=10,file=codes-text.h5)' \
  --policy 'full+a2ats(read=3%,centres=128,rounds=10,file=codes-keys1.h5)' \
  --policy 'full+a2ats(read=3%,centres=128,rounds=10,file=codes-keys0.h5,own_traces=allowed)' -o moved.csv --quiet
