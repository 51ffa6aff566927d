#!/usr/bin/env bash
# Builds the wheel of the Python package:
#   tools/wheel.sh FOLDER [BUILD]      for machines like this one; `pip wheel .` makes the same. With the folder of a release
#                                      build, what is compiled there already is not compiled again
#   tools/wheel.sh --portable FOLDER   for other machines: x86-64 with AVX2, a libc not older than this one's. Two wheels, for this
#                                      Python and for 3.12 and later, with the libraries that they need and their licences inside
set -euo pipefail
cd "$(dirname "$0")/.."
portable=
[ "$1" != --portable ] || { portable=yes; shift; }
folder=$(realpath -m "$1")
build=${2:+$(realpath -m "$2")}

tools/setup.sh python3-dev python3-pip
python=$(tools/python_env.sh tests/python/requirements.txt)
rm -rf "$folder"

# The folder of the wheel and its settings follow the command that is pip, for some Python.
wheel_by() {
  "${pip[@]}" wheel . --no-deps --no-build-isolation --quiet --disable-pip-version-check --wheel-dir "$@"
}

pip=(/usr/bin/python3 -m pip --python "$python")
if [ -z "$portable" ]; then
  settings=(--config-settings "build-dir=${build:-build/wheel}")
  # pip's own defaults would turn these off.
  [ -z "$build" ] || settings+=(--config-settings=cmake.define.KVSIM_{TESTS,WERROR}=ON --config-settings=cmake.define.KVSIM_CUDA=AUTO)
  wheel_by "$folder" "${settings[@]}"
else
  newer=$(tools/packaging/newer_python.sh)
  made=build/portable/wheels
  rm -rf "$made"
  # Of the preset `portable` and in its folder, by one compiler, where each Python names another: what is compiled once serves both
  # wheels and the Debian packages.
  settings=(--config-settings=build-dir=build/portable --config-settings=cmake.args=--preset=portable)
  export CC=${CC:-cc} CXX=${CXX:-c++}
  for interpreter in "$python" "$newer"; do
    [ "$interpreter" = "$python" ] || pip=("$newer" -m pip)
    rm -f build/portable/CMakeCache.txt  # it remembers the other interpreter
    wheel_by "$made" "${settings[@]}"
  done
  for wheel in "$made"/*.whl; do
    PATH=$(dirname "$newer"):$PATH "$newer" -m auditwheel repair --wheel-dir "$made/repaired" "$wheel"
  done
  "$newer" tools/packaging/add_licences.py "$folder" "$made"/repaired/*.whl
fi
ls "$folder"
