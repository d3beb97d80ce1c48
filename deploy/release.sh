#!/usr/bin/env bash
# Makes one stripped `moeplan` that runs on any x86-64 Linux with glibc 2.35 or newer (Ubuntu 22.04, NGC containers) and
# needs nothing else: no package, no root, no other file. Builds in build-one-file/.
#
# Usage: deploy/release.sh [FILE, default build-one-file/moeplan]
#
# Not in it, and named by who asks for it: ranks of this machine (Debian has no archive of Gloo), GPUs, simulated clusters,
# codec ZFP, and what Prometheus reads of `serve`.
set -euo pipefail

fail() {
  printf 'release: %s\n' "$*" >&2
  exit 1
}

(($# <= 1)) && [[ "${1:-}" != -* ]] || {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
  exit 2
}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file="$(realpath -m -- "${1:-build-one-file/moeplan}")"

cmake --preset one-file > /dev/null || fail "cmake could not configure build-one-file/ (its message is above)"
cmake --build --preset one-file --target moeplan --parallel "$(nproc)" > build-one-file/build.log ||
  { tail -n 20 build-one-file/build.log >&2; fail "the build in build-one-file/ failed (its last lines are above)"; }
mkdir -p "$(dirname "$file")"
strip -o "$file" build-one-file/bin/moeplan

# Locales would translate what is read here.
export LC_ALL=C
needed="$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|ld-linux-x86-64)\.so\.[0-9]+$' || true)"
[[ -z "$needed" ]] || fail "$file needs ${needed//$'\n'/, }, expected glibc alone"
newest="$(readelf --dyn-syms --wide "$file" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)"
[[ "$(printf '%s\nGLIBC_2.35\n' "$newest" | sort -V | tail -n 1)" == GLIBC_2.35 ]] ||
  fail "$file has symbols of $newest, expected none newer than GLIBC_2.35: $(
    readelf --dyn-syms --wide "$file" | grep -F "$newest" | awk '{ print $8 }' | head -n 5 | tr '\n' ' ')"
megabytes=$(($(stat -c %s "$file") / 1000000))
((megabytes <= 60)) || fail "$file has $megabytes MB, expected 60 at most"
printf 'release: %s, %d MB, for glibc from %s on\n' "$file" "$megabytes" "${newest#GLIBC_}"
