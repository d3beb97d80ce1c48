#!/usr/bin/env bash
# Installs the Debian packages of deploy/packages.txt that are missing, and asks nothing. Needs root or sudo, and the
# network, only when something is missing; the package lists are refreshed only when they do not suffice.
#
# Usage: deploy/packages.sh [--without-deploy-tests]
#   --without-deploy-tests   not what only tests of deploy/, web/ and python/ want: some of that are services (Prometheus,
#                            Slurm, munge), and one is a browser
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'packages: %s\n' "$*" >&2
  exit 1
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in
  '') left_out='^$' ;;
  --without-deploy-tests) left_out='^# Tests of deploy/' ;;
  *) fail "found '$1', expected --without-deploy-tests or nothing" ;;
esac
# Node.js comes from many places; one that is there stays.
if command -v npm > /dev/null; then left_out+='|^# Building the dashboard'; fi
# The list has a paragraph, with its heading, for each use.
mapfile -t wanted < <(
  awk -v RS= -v ORS='\n' -v left_out="$left_out" '$0 !~ left_out' "$here/packages.txt" |
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d'
)

missing_packages() {
  # Unknown names are not listed, hence missing. "ii": wanted and installed.
  { dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${wanted[@]}" 2>/dev/null || true; } |
    awk -v wanted="${wanted[*]}" '
      /^ii/ { installed[$2] }
      END { count = split(wanted, names, " "); for (i = 1; i <= count; ++i) if (!(names[i] in installed)) print names[i] }'
}

command -v apt-get > /dev/null ||
  fail "no apt-get here: this is for Debian 12; elsewhere install what deploy/packages.txt names by hand"
mapfile -t missing < <(missing_packages)
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null ||
    fail "${#missing[@]} packages are missing (${missing[*]}); run as root, or install sudo"
  as_root=(sudo)
fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" \
    < /dev/null >> "$log" 2>&1
}
install() { apt install --no-install-recommends "${missing[@]}"; }

printf 'packages: installing %d: %s\n' "${#missing[@]}" "${missing[*]}"
if ! install; then
  # No lists yet, or too old ones.
  if ! { apt update && install; }; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install ${missing[*]} (its last lines are above)"
  fi
fi
