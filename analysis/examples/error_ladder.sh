# What a bit buys, on two texts of the shipped model (analysis/CHOOSING_A_POLICY.md). Half a minute.
set -e
kvsim capture --model traces/sample/model --prompt traces/sample/prompts/text-1500.txt --max-new-tokens 64 --ignore-eos -o other.h5 --quiet
kvsim calibrate 'kvquant(bits=4)' other.h5 -o kvquant4.h5 --quiet
kvsim calibrate 'kvquant(bits=2)' other.h5 -o kvquant2.h5 --quiet
kvsim calibrate matryoshka other.h5 -o matryoshka.h5 --quiet
kvsim calibrate 'kv_heads(heads=4)' other.h5 -o kv_heads4.h5 --quiet
kvsim calibrate cskv other.h5 -o cskv.h5 --quiet
kvsim study analysis/examples/error_ladder.json -o ladder --quiet
