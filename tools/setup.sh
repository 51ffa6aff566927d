#!/usr/bin/env bash
# Installs the missing packages that kvsim is built with on Debian 12, and the packages named as arguments. Does nothing, and
# needs no root, if all are present. `--tests`, first: and what the tests need, MPI and gnuplot among it.
# `tools/setup.sh --libraries` only says which libraries every build is linked with.
set -euo pipefail

libraries=(libboost-json1.81-dev libhdf5-dev libeigen3-dev libtbb-dev libicu-dev libcli11-dev libssl-dev libxxhash-dev zlib1g-dev
           libfaiss-dev libhnswlib-dev libboost-context1.81-dev libsentencepiece-dev)
[ "${1-}" != --libraries ] || { echo "${libraries[@]}"; exit; }
tests=(libboost-mpi1.81-dev openmpi-bin gnuplot-nox catch2 python3 python3-h5py python3-numpy python3-xxhash python3-pandas
       python3-matplotlib zsh chromium groff-base)
packages=(g++ cmake ninja-build git "${libraries[@]}")
if [ "${1-}" = --tests ]; then
  packages+=("${tests[@]}")
  shift
fi
packages+=("$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "installing: ${missing[*]}" >&2
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
