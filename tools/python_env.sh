#!/usr/bin/env bash
# Makes a Python environment with the packages of a requirements file, once, and prints its interpreter's path. By default they
# are those of the tests that compare with PyTorch:
#   export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)
# It lies under ${XDG_CACHE_HOME:-~/.cache}/kvsim, named by the hash of its requirements.
# A file that begins with "# On top of OTHER" adds its packages, without what they depend on, to those of OTHER.
# PyTorch needs the CUDA libraries even on the processor, so that one downloads about 3 GB and takes 5.5 GB on disk.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=${1:-tools/python/kvsim/hf/requirements.txt}
[ -f "$requirements" ] || { echo "tools/python_env.sh: $requirements: no such file of requirements" >&2; exit 2; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvsim
made=$cache/python-$(sha256sum "$requirements" | cut -c1-16)
if [ ! -x "$made/bin/python" ]; then
  tools/setup.sh python3-pip
  mkdir -p "$cache"
  making=$(mktemp -d "$made.XXXX")
  trap 'rm -rf "$making"' EXIT
  echo "making $made" >&2
  /usr/bin/python3 -m venv --without-pip "$making"
  alone=()
  below=$(sed -nE '1s/^# On top of ([^:]*).*/\1/p' "$requirements")
  if [ -n "$below" ]; then
    alone=(--no-deps)
    packages='import sysconfig; print(sysconfig.get_path("purelib"))'
    "$(tools/python_env.sh "$below")" -c "$packages" > "$("$making/bin/python" -c "$packages")/below.pth"
  fi
  /usr/bin/python3 -m pip --python "$making/bin/python" install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
    "${alone[@]}" -r "$requirements" >&2
  modules=$(sed -E '/^#/d; s/[=<>].*//; s/-/_/g; s/^optimum_/optimum./; s/^mkdocs_material$/material/' "$requirements" | paste -sd,)
  "$making/bin/python" -c "import $modules" >&2
  # Scripts in bin/ contain the path of the temporary folder, so they are deleted; the interpreter finds its own path.
  find "$making/bin" -type f -delete
  # If another run has already made the environment, that one is used.
  mv -T "$making" "$made" 2>/dev/null || [ -x "$made/bin/python" ]
fi
echo "$made/bin/python"
