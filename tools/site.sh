#!/usr/bin/env bash
# Builds a searchable site of the pages in this repository and of what kvsim prints of itself: a page per policy and per
# command, the columns of every result, the costs beside published numbers. Argument: an output directory (default build/site).
# It is then in html/ there. Builds kvsim, and fetches MkDocs Material from PyPI once.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/site}

tools/setup.sh --tests python3-pip
python=$(tools/python_env.sh tools/site/requirements.txt)
cmake --preset release -DKVSIM_TESTS=ON -DKVSIM_REQUESTS=ON >&2
cmake --build --preset release --target kvsim cost_validation >&2
mkdir -p "$out"
/usr/bin/python3 tools/site/write_pages.py build/release/kvsim "$out"
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --quiet --strict --config-file "$out/mkdocs.yml"
echo "$out/html/index.html"
