#!/usr/bin/env bash
# Unpacks what models, executor and their GPU tests need besides CUDA and a compiler into a folder, and installs nothing:
# Debian's Eigen, tl::expected, GoogleTest and zfp. For tests/gpu/run.sh --deps DIR, here or, once copied, on a machine that
# lacks them. Needs Debian or a relative of it, and the network; no root.
#
# Usage: deploy/gpu-deps.sh DIR
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'gpu-deps: %s\n' "$*" >&2
  exit 1
}

(($# == 1)) && [[ "$1" != -* ]] || fail "found '$*', expected one folder: deploy/gpu-deps.sh DIR"
for program in apt-get dpkg; do
  command -v "$program" > /dev/null || fail "$program is not here: this is for Debian"
done
mkdir -p "$1"
target="$(cd "$1" && pwd)"

packages=(libeigen3-dev libexpected-dev libgtest-dev libgmock-dev googletest libzfp-dev libzfp1)
downloads="$(mktemp -d)"
trap 'rm -rf "$downloads"' EXIT
cd "$downloads"
apt-get -qq download "${packages[@]}" > log 2>&1 || {
  tail -n 5 log >&2
  fail "apt-get could not download ${packages[*]} (its last lines are above)"
}
for package in *.deb; do dpkg -x "$package" "$target"; done
printf 'gpu-deps: %d packages in %s\n' "${#packages[@]}" "$target"
