#!/usr/bin/env bash
# Makes a CUDA toolkit, as far as kvsim needs one, from NVIDIA's packages on PyPI: tools/cuda_toolkit.sh DIR
# Then: cmake ... -DCUDAToolkit_ROOT=DIR. Compiling needs no GPU and no driver. Downloads about 0.5 GB. It is CUDA 13.0: what is
# built with it needs a driver of version 580 or newer.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
python3 -m pip --version >/dev/null 2>&1 || { echo "cuda_toolkit.sh: needs pip: apt-get install python3-pip" >&2; exit 2; }

mkdir -p "$1"
dir=$(cd "$1" && pwd)
unpacked=$(mktemp -d "$dir/packages.XXXXXX")
trap 'rm -rf "$unpacked"' EXIT
# All packages are of one release; nvcc, nvvm and crt must have exactly the same version.
python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$unpacked" \
  nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
  nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3
cp -a "$unpacked"/nvidia/cu13/. "$dir"
# Creates the names that compilers and CMake search for.
ln -sfn lib "$dir/lib64"
for library in "$dir"/lib/lib*.so.[0-9]*; do
  ln -sf "$(basename "$library")" "${library%.so.*}.so"
done
"$dir/bin/nvcc" --version | tail -2 | head -1
