#!/usr/bin/env bash
# Installs the packages of a folder into a bare Debian, which has nothing that kvsim is built with, and uses them there.
#   tools/packaging/try_packages.sh FOLDER SUITE      SUITE: bookworm, trixie, ...
# Wheels (tools/wheel.sh --portable): runs the first notebook, whose tables must be those that stand in it. Debian packages (cpack):
# captures and replays a run with the command, and compiles the example of find_package. Needs root, PyPI and Debian's mirror.
set -euo pipefail
folder=$(realpath "$1")
suite=$2
cd "$(dirname "$0")/../.."

tools/setup.sh debootstrap
root=$(mktemp -d)
chmod 755 "$root"
trap 'rm -rf "$root"' EXIT
began=$SECONDS
debootstrap --variant=minbase --include=python3-venv "$suite" "$root" >"$root/debootstrap.log" 2>&1 || { tail "$root/debootstrap.log" >&2; exit 1; }
packages=$(chroot "$root" dpkg-query -W -f '${Package}\n')
echo "$suite: $(wc -l <<<"$packages") packages, installed in $((SECONDS - began)) s"
if grep -E '^(g\+\+|gnuplot|libblas|libboost|libgomp|libhdf5|libicu|libsentencepiece|libtbb|python3-numpy)' <<<"$packages" >&2; then
  echo "a bare $suite has these" >&2
  exit 1
fi

# Names and certificates as this machine has them, and of the clone what its user would look at.
cp --parents /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt "$root"
mkdir "$root/clone"
cp -r --parents tests/python/{conftest,test_notebooks}.py tests/install tools/python/notebooks/your_model.ipynb traces/sample "$root/clone"
cp -r "$folder" "$root/packages"

# Runs lines of bash in it, with a /proc of its own that ends with them.
inside() {
  unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i HOME=/root DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=/etc/ssl/certs/ca-certificates.crt bash -euc "$1"
}

if compgen -G "$folder/*.whl" >/dev/null; then
  rm -r "$root/clone/traces"  # the wheel brings a model
  inside '
    python3 -m venv /env
    pip="/env/bin/python -m pip --quiet --disable-pip-version-check"
    SECONDS=0
    $pip install --no-index --no-deps --find-links /packages kvsim
    echo "installed the wheel in $SECONDS s, $(du -sh /env/lib/python3*/site-packages/kvsim* | tr "\n\t" "; ")"
    SECONDS=0
    $pip install "kvsim[plots]" pytest nbclient nbformat ipykernel
    echo "installed pandas, matplotlib and Jupyter'"'"'s kernel in $SECONDS s"
    /env/bin/kvsim --version
    SECONDS=0
    cd /clone/tests/python
    /env/bin/python -m pytest -q -p no:cacheprovider test_notebooks.py -k your_model
    echo "ran the first notebook in $SECONDS s"'
fi
if compgen -G "$folder/*.deb" >/dev/null; then
  inside '
    apt-get -qq update
    SECONDS=0
    apt-get -qq install --no-install-recommends /packages/kvsim_*.deb >/dev/null
    echo "installed kvsim in $SECONDS s"
    cd /clone
    kvsim --version
    kvsim capture --model traces/sample/model --prompt traces/sample/prompts/needle-0500-multi.txt --max-new-tokens 8 -o /run.h5 --quiet
    kvsim replay /run.h5 --policy snapkv --policy h2o --budget 25% --quiet
    SECONDS=0
    apt-get -qq install --no-install-recommends /packages/libkvsim-dev_*.deb cmake make g++ >/dev/null
    echo "installed libkvsim-dev and a compiler in $SECONDS s"
    cmake -S tests/install/example -B /example >/dev/null
    cmake --build /example
    /example/compare_policies /run.h5 25% snapkv h2o value_norm'
fi
