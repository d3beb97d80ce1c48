#!/usr/bin/env bash
# Runs the random tests with new seeds, round after round. Every other run has a fixed seed (tests/test_seed.h), so that a
# red test blames the change under test; this looks for what that one seed does not find. Each round prints its seed
# first, and the last lines name those that failed, with the command that repeats them.
#
# Usage: tests/rotating_seeds.sh [ROUNDS] [ARGUMENTS OF tests/run.sh...]
#   tests/rotating_seeds.sh                        one round
#   tests/rotating_seeds.sh 20 --preset asan       twenty, under AddressSanitizer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=1
if [[ "${1:-}" =~ ^[1-9][0-9]*$ ]]; then
  rounds="$1"
  shift
elif [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
  exit 0
fi

# The suites of the files that ask for a seed; a parameterised one has its instances' name before a '/'.
suites="$(grep -rlF '"tests/test_seed.h"' tests --include='*.cc' |
  xargs sed -nE 's/^(TYPED_)?TEST(_F|_P)?\(([A-Za-z0-9_]+),.*/\3/p' | sort -u | paste -sd '|')"
readonly pattern="(^|/)($suites)(/|\\.)"

failed=()
for ((round = 1; round <= rounds; ++round)); do
  seed="$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')"
  printf '==> round %d of %d: MOEPLAN_TEST_SEED=%s\n' "$round" "$rounds" "$seed"
  MOEPLAN_TEST_SEED="$seed" tests/run.sh "$@" -R "$pattern" || failed+=("$seed")
done

for seed in ${failed[@]+"${failed[@]}"}; do
  printf 'failed with seed %s: MOEPLAN_TEST_SEED=%s tests/run.sh %s\n' "$seed" "$seed" "$*"
done
printf '%d rounds, %d failed\n' "$rounds" "${#failed[@]}"
((${#failed[@]} == 0))
