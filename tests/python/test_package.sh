#!/usr/bin/env bash
# Installs the wheel that tools/wheel.sh has built into an empty folder and runs the tests of the package there:
# test_package.sh WHEELS [PYTEST ARGUMENTS]
set -euo pipefail
wheels=$(realpath -m "$1")
shift
cd "$(dirname "$0")/../.."

wheel=$(compgen -G "$wheels/kvsim-*.whl") || { echo "skipped: no wheel in $wheels: tools/wheel.sh $wheels makes one"; exit 77; }
python=$(tools/python_env.sh tests/python/requirements.txt)
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
/usr/bin/python3 -m pip --python "$python" install --quiet --disable-pip-version-check --no-deps --no-index --target "$site" "$wheel"
export PYTHONPATH=$site KVSIM_COMMAND=$site/bin/kvsim
cd tests/python
"$python" -m pytest -q -p no:cacheprovider -W ignore::kvsim.Note "$@"
