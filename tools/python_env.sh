#!/usr/bin/env bash
# Makes a Python with what the Hugging Face hook is tested with, once, and prints where it is:
#   export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)
# The tests of the hook run with it. It is kept under ${XDG_CACHE_HOME:-~/.cache}/kvsim, named by the hash of its requirements.
# PyTorch links the CUDA libraries even where it computes on the processor: about 3 GB to download and 5.5 GB on disk.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=tools/python/kvsim_capture/requirements.txt
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvsim
made=$cache/python-$(sha256sum "$requirements" | cut -c1-16)
if [ ! -x "$made/bin/python" ]; then
  tools/setup.sh python3-pip
  mkdir -p "$cache"
  making=$(mktemp -d "$made.XXXXXX")
  trap 'rm -rf "$making"' EXIT
  echo "making $made" >&2
  /usr/bin/python3 -m venv --without-pip "$making"
  /usr/bin/python3 -m pip --python "$making/bin/python" install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
    -r "$requirements" >&2
  "$making/bin/python" -c "import h5py, torch, transformers" >&2
  # Scripts in bin/ name the folder they were made in; the interpreter finds its own.
  find "$making/bin" -type f -delete
  # Another run may have been faster: then its environment is as good.
  mv -T "$making" "$made" 2>/dev/null || [ -x "$made/bin/python" ]
fi
echo "$made/bin/python"
