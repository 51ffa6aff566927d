#!/usr/bin/env bash
# Prints the path of a Python that builds the wheel for 3.12 and later, with what is needed for that installed in it. Debian 12's
# is 3.11, so this one is compiled once from the release's source, into ${XDG_CACHE_HOME:-~/.cache}/kvsim: some five minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=3.13.5
digest=93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640
sources=("https://www.python.org/ftp/python/$version/Python-$version.tar.xz"
         "http://deb.debian.org/debian/pool/main/p/python3.13/python3.13_$version.orig.tar.xz")
requirements=tools/packaging/requirements.txt

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvsim
made=$cache/cpython-$version-$(sha256sum "$requirements" | cut -c1-16)
if [ ! -x "$made/bin/python3" ]; then
  tools/setup.sh curl xz-utils libssl-dev libffi-dev zlib1g-dev
  mkdir -p "$cache"
  building=$(mktemp -d "$made.XXXXXX")
  trap 'rm -rf "$building"' EXIT
  echo "making $made" >&2
  for source in "${sources[@]}"; do
    curl --fail --silent --show-error --location --max-time 600 "$source" -o "$building/python.tar.xz" && break
  done
  sha256sum --check --quiet <<<"$digest  $building/python.tar.xz" >&2
  mkdir "$building/source"
  tar -xf "$building/python.tar.xz" -C "$building/source" --strip-components=1
  (
    cd "$building/source"
    ./configure --prefix="$made" --disable-test-modules
    make -j"$(nproc)"
    make install DESTDIR="$building/root"
  ) >"$building/log" 2>&1 || { tail -n 30 "$building/log" >&2; exit 1; }
  "$building/root$made/bin/python3" -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
    -r "$requirements" >&2
  # If another run has already made it, that one is used.
  mv -T "$building/root$made" "$made" 2>/dev/null || [ -x "$made/bin/python3" ]
fi
echo "$made/bin/python3"
