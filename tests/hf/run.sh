#!/usr/bin/env bash
# Installs the wheel that tools/wheel.sh has built into an empty folder and runs the tests of kvsim.hf there that need the compiled
# half, with the interpreter that KVSIM_TORCH_PYTHON names: run.sh WHEELS [UNITTEST ARGUMENTS]
set -euo pipefail
wheels=$(realpath -m "$1")
shift
cd "$(dirname "$0")"

wheel=$(compgen -G "$wheels/kvsim-*.whl") || { echo "skipped: no wheel in $wheels: tools/wheel.sh $wheels makes one"; exit 77; }
if [ -z "${KVSIM_TORCH_PYTHON:-}" ]; then
  echo "skipped: KVSIM_TORCH_PYTHON names no Python with torch and transformers. To have it: export KVSIM_TORCH_PYTHON=\$(tools/python_env.sh)"
  exit 77
fi
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
/usr/bin/python3 -m pip --python "$KVSIM_TORCH_PYTHON" install --quiet --disable-pip-version-check --no-deps --no-index --target "$site" "$wheel"
# Waiting threads that spin would slow down tests that run at the same time.
export PYTHONPATH=$site PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
"$KVSIM_TORCH_PYTHON" -m unittest "$@"
