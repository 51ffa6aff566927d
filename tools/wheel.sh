#!/usr/bin/env bash
# Builds the wheel of the Python package: tools/wheel.sh FOLDER [BUILD]. It runs on machines like this one; `pip wheel .` makes
# the same. With the folder of a release build, what is compiled there already is not compiled again.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "$1")
build=${2:+$(realpath -m "$2")}

tools/setup.sh python3-dev python3-pip
python=$(tools/python_env.sh tests/python/requirements.txt)
settings=(--config-settings "build-dir=${build:-build/wheel}")
# pip's own defaults would turn these off.
[ -z "$build" ] || settings+=(--config-settings=cmake.define.KVSIM_{TESTS,WERROR}=ON --config-settings=cmake.define.KVSIM_CUDA=AUTO)
rm -rf "$folder"
/usr/bin/python3 -m pip --python "$python" wheel . --no-deps --no-build-isolation --quiet --disable-pip-version-check \
  --wheel-dir "$folder" "${settings[@]}"
ls "$folder"
