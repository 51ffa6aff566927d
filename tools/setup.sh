#!/usr/bin/env bash
# Installs the missing packages that kvsim needs on Debian 12, and the packages named as arguments. Does nothing, and
# needs no root, if all are present.
set -euo pipefail

packages=(g++ cmake ninja-build git
          libboost-json1.81-dev libhdf5-dev libeigen3-dev libtbb-dev libicu-dev libcli11-dev libssl-dev libxxhash-dev zlib1g-dev
          libfaiss-dev libhnswlib-dev libboost-mpi1.81-dev openmpi-bin
          libboost-context1.81-dev libsentencepiece-dev gnuplot-nox catch2 python3 python3-h5py python3-numpy python3-xxhash python3-pandas python3-matplotlib zsh
          "$@")

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
