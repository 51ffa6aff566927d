#!/bin/bash
# A model of Llama-3.2-1B's shape with random weights, captured at 8192 tokens on a CUDA device: first one run
# with its numbers, then captured against uncaptured, then the Hugging Face hook on the same model and prompt if
# KVSIM_TORCH_PYTHON names a Python with torch and transformers.
#
#   tests/bench/cuda_1b.sh BUILD FOLDER      FOLDER gets 2.5 GB of weights and 1 GB per trace; PYTHON has numpy
set -euo pipefail
build=$(realpath "$1") folder=$2
here=$(realpath "$(dirname "$0")/../..")
mkdir -p "$folder"
if [ ! -e "$folder/model/tokens.txt" ]; then
  "${PYTHON:-python3}" "$here/tests/support/random_checkpoint.py" "$folder/model" --like llama-3.2-1b --shards 3 \
      --tokens 8192
fi
capture=("$build/kvsim" capture --model "$folder/model" --tokens "$folder/model/tokens.txt" --device cuda
         --max-new-tokens 64 --ignore-eos --prefill-chunk 2048 --overwrite --quiet)
for queries in all window:512; do
  echo "== bf16, --queries $queries"
  time "${capture[@]}" --queries "$queries" -o "$folder/run.h5"
done
"$build/kvsim" trace check "$folder/run.h5"
"$build/kvsim" trace info "$folder/run.h5"
"$build/tests/bench_cuda" 5 --model "$folder/model" --tokens 8192 --new 64 --output "$folder"
if [ -n "${KVSIM_TORCH_PYTHON:-}" ]; then
  echo "== the Hugging Face hook"
  time "$KVSIM_TORCH_PYTHON" "$here/tools/python/capture_hf.py" "$folder/model" \
      --tokens "$folder/model/tokens.txt" --device cuda --dtype bfloat16 --max-new-tokens 64 --ignore-eos \
      --prefill-chunk 2048 -o "$folder/hook.h5" --overwrite
fi
