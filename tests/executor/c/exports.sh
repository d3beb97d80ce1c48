#!/usr/bin/env bash
# Usage: exports.sh LIBRARY HEADER
# Whether the library exports the functions that the header declares, and nothing else: no BLAS, no Gloo, no C++.
set -euo pipefail
export LC_ALL=C

exported="$(nm -D --defined-only "$1" | awk '{ print $3 }' | sort)"
declared="$(grep -oE '\bmoeplan_[a-z_]+\(' "$2" | tr -d '(' | sort -u)"
diff <(printf '%s\n' "$declared") <(printf '%s\n' "$exported") || {
  printf 'exports: %s: left, what %s declares; right, what is exported\n' "$1" "$2" >&2
  exit 1
}
printf 'exports: %d functions\n' "$(printf '%s\n' "$exported" | wc -l)"
