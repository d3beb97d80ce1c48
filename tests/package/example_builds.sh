#!/usr/bin/env bash
# Installs a build, moves it elsewhere, and builds and runs the example against it, and the example extensions, in a folder
# outside of both trees.
#
# Usage: example_builds.sh SOURCE_DIR BUILD_DIR CXX_COMPILER
set -euo pipefail
export LC_ALL=C
source_dir="$1" build_dir="$2" compiler="$3"

fail() {
  printf 'package: %s\n' "$*" >&2
  exit 1
}

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build_dir" --component executor --prefix "$scratch/staging" > /dev/null
mv "$scratch/staging" "$scratch/prefix"
named="$(find "$scratch/prefix" -name '*.cmake' -exec grep -l -e "$source_dir" -e "$build_dir" -e "$scratch" {} +)" || true
[[ -z "$named" ]] || fail "these files name the tree they were built in, or where they were installed first: $named"

cp -R "$source_dir/tests/package/example" "$scratch/example"
cmake -S "$scratch/example" -B "$scratch/build" -G Ninja -D CMAKE_PREFIX_PATH="$scratch/prefix" \
  -D CMAKE_CXX_COMPILER="$compiler" > /dev/null
cmake --build "$scratch/build"

output="$("$scratch/build/example" | sort)"
printf '%s\n' "$output"
[[ "$(grep -c '^rank [0-3]: largest output [0-9]' <<< "$output")" == 4 ]] || fail "expected an output of each of 4 ranks"
# The two ranks of an MP group have the same output, and the groups have batches of their own.
[[ "$(sed 's/^.*output //' <<< "$output" | uniq -c | awk '{ print $1 }' | xargs)" == "2 2" ]] ||
  fail "expected one output for ranks 0 and 1 and another for ranks 2 and 3"

# A library of extensions links nothing of ours, and the command, where it was built, loads it.
cp -R "$source_dir/docs/extending" "$scratch/extending"
cmake -S "$scratch/extending" -B "$scratch/extension" -G Ninja -D CMAKE_PREFIX_PATH="$scratch/prefix" \
  -D CMAKE_CXX_COMPILER="$compiler" > /dev/null
cmake --build "$scratch/extension"
library="$scratch/extension/libmoeplan_examples.so"
if [[ -x "$build_dir/bin/moeplan" ]]; then
  contract="$source_dir/tests/data/contract"
  sed 's/"layer": *{/&"expertKind": "SQUARED_RELU",/; s/"expertMatrices": *3/"expertMatrices": 2/' "$contract/workload.example.json" > "$scratch/workload.json"
  "$build_dir/bin/moeplan" plan --profile "$contract/profile.example.json" --workload "$scratch/workload.json" \
    --extension "$library" --json > "$scratch/plan.json"
  grep -q 'EXPERT_GEMM_SQUARED_RELU: not in the profile; priced as EXPERT_GEMM' "$scratch/plan.json" ||
    fail "expected a plan for the example's experts"
fi
