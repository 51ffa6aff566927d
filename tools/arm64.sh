#!/usr/bin/env bash
# Builds kvsim for 64-bit ARM on an x86-64 machine and runs it there in emulation: tools/arm64.sh [what kvsim is asked ...]
# The libraries are those of Debian's arm64, unpacked into a folder of their own; on this machine only the compiler and the emulator are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh g++-aarch64-linux-gnu qemu-user-static
root=${XDG_CACHE_HOME:-$HOME/.cache}/kvsim/arm64
export KVSIM_ARM64_ROOT=$root
if [ ! -e "$root/complete" ]; then
  rm -rf "$root" && mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
  : > "$root/apt/status"
  arm=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$root/apt" -o Dir::State::status="$root/apt/status"
       -o Dir::Cache="$root/apt" -o APT::Install-Recommends=0 -o Debug::NoLocking=1)
  "${arm[@]}" update
  "${arm[@]}" install -y --download-only libstdc++-12-dev $(tools/setup.sh --libraries) > /dev/null
  for package in "$root"/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  for name in blas lapack; do  # links that the packages make when they are installed
    for link in so so.3; do ln -s "$name/lib$name.$link" "$root/usr/lib/aarch64-linux-gnu/lib$name.$link"; done
  done
  rm -r "$root/apt"
  touch "$root/complete"
fi
cmake --preset arm64 >&2
cmake --build --preset arm64 >&2
[ $# -gt 0 ] || set -- --version
exec qemu-aarch64-static -L "$root" build/arm64/kvsim "$@"
