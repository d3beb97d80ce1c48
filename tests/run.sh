#!/usr/bin/env bash
# Builds what changed and runs every test. The last line is "N passed, N failed" or "N passed, N failed, N skipped"; the
# exit status is 0 only when at least one test ran and none failed.
#
# Usage: tests/run.sh [--preset dev|ci|asan|tsan|bare|release] [CTEST ARGUMENTS...]
#   tests/run.sh                          everything, in build-dev/
#   tests/run.sh --preset ci              the same of a build from nothing, in about half of the time, in build-ci/
#   tests/run.sh -R Workload              only the tests whose name matches
#   tests/run.sh --preset tsan            everything under ThreadSanitizer, in build-tsan/
# The quick start builds into build/, so do the tests of --preset release. Missing packages: deploy/packages.sh.
set -euo pipefail

fail() {
  printf 'tests: %s\n' "$*" >&2
  exit 1
}

preset=dev
case "${1:-}" in
  --preset)
    preset="${2:-}"
    shift $(($# < 2 ? $# : 2))
    ;;
  --preset=*)
    preset="${1#--preset=}"
    shift
    ;;
  -h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
case "$preset" in
  release) build=build ;;
  dev | ci | asan | tsan | bare) build="build-$preset" ;;
  *) fail "--preset: found '$preset', expected dev, ci, asan, tsan, bare or release" ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
for program in cmake ninja g++; do
  command -v "$program" > /dev/null || fail "$program is not installed; deploy/packages.sh installs what is missing"
done

# The release and bare presets leave the tests out unless asked.
cmake --preset "$preset" -D MOEPLAN_BUILD_TESTS=ON > /dev/null ||
  fail "cmake could not configure $build/ (its message is above)"
cmake --build --preset "$preset" --parallel "$(nproc)" || fail "the build in $build/ failed (the first error is above)"

# For what is read below; the build keeps the locale, which is part of what ccache knows an object by.
export LC_ALL=C

report="$PWD/$build/tests.xml"
rm -f "$report"
# A log wants only what went wrong: what each failed test printed, and the list of them.
shown() { cat; }
[[ -t 1 ]] || shown() { sed -uE '/^ *Start +[0-9]+: /d; / +Passed +[0-9.]+ sec *$/d'; }
status=0
ctest --preset "$preset" --output-junit "$report" "$@" | shown || status=$?
[[ -f "$report" ]] || fail "ctest ended with $status and left no report in $build/tests.xml"

# CTest escapes '<' in what tests print, so these line starts are its own. A test that could not be started stands there
# as skipped too; only a test that skipped itself, or is disabled, counts as skipped here.
counts="$(awk '
  /^\t<testcase / { ++tests }
  /^\t<testcase .* status="run"/ { ++passed }
  /^\t<testcase .* status="disabled"/ { ++skipped }
  /^\t\t<skipped message="SKIP_/ { ++skipped }
  END { printf "%d %d %d", passed, tests - passed - skipped, skipped }' "$report")"
read -r passed failed skipped <<< "$counts"

if ((passed + failed + skipped == 0)); then
  printf 'tests: no test ran\n' >&2
  status=1
elif ((failed > 0 && status == 0)); then
  status=1
fi
printf '%d passed, %d failed' "$passed" "$failed"
((skipped == 0)) || printf ', %d skipped' "$skipped"
printf '\n'
exit "$status"
