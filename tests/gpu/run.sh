#!/usr/bin/env bash
# On a machine with a CUDA toolkit, CMake, Ninja, a compiler and one GPU: builds models, executor, GPU tests and benchmarks
# into build-gpu/, runs them, and writes one JSON of results. Needs no gRPC, Protobuf or SQLite.
#
# Usage: tests/gpu/run.sh [--deps DIR] [--out FILE]
#   --deps DIR   Eigen, tl::expected and GoogleTest as deploy/gpu-deps.sh unpacks them; else those of the system
#   --out FILE   where the results go; default build-gpu/results.json. Beside it, as FILE.samples.json, the samples that
#                a profile of the card is fitted to
#
# Exit status: 0 when all tests passed, 1 when something failed, 2 when all was compiled and there is no GPU.
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'gpu: %s\n' "$*" >&2
  exit 1
}

command_line="tests/gpu/run.sh${*:+ $*}"
deps='' out=''
while (($# > 0)); do
  case "$1" in
    --deps | --out)
      (($# > 1)) || fail "$1: found nothing behind it, expected a path"
      [[ "$1" == --deps ]] && deps="$(realpath -- "$2")" || out="$(realpath -m -- "$2")"
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "found '$1', expected --deps DIR or --out FILE" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out="${out:-$PWD/build-gpu/results.json}"
export PATH="$PATH:/usr/local/cuda/bin"
for program in cmake ninja nvcc; do
  command -v "$program" > /dev/null || fail "$program is not installed"
done

mkdir -p build-gpu
cmake --preset gpu ${deps:+-D "CMAKE_PREFIX_PATH=$deps/usr"} > build-gpu/configure.log 2>&1 || {
  tail -n 20 build-gpu/configure.log >&2
  fail "cmake could not configure build-gpu/ (its last lines are above, all of them in build-gpu/configure.log)"
}
cmake --build build-gpu --parallel "$(nproc)" --target gpu_test gpu_machine_test gpu_bench gpu_samples kernels_on_cpu_test machine_on_cpu_test ||
  fail "the build in build-gpu/ failed (the first error is above)"

if ! card="$(build-gpu/bin/gpu_bench --card 2> /dev/null)"; then
  printf 'gpu: everything is compiled, but there is no GPU here; nothing was run\n'
  exit 2
fi

status=0
parts="$(mktemp -d)"
trap 'rm -rf "$parts"' EXIT
build-gpu/bin/gpu_test --gtest_output="json:$parts/tests.json" || status=1
build-gpu/bin/gpu_machine_test --gtest_output="json:$parts/machine.json" || status=1

# check TOOL PROGRAM...: small shapes all of them; a checker that is not installed is null in the results.
check() {
  if ! command -v compute-sanitizer > /dev/null; then
    printf 'null'
  elif compute-sanitizer --tool "$1" --error-exitcode 1 "${@:2}" > "$parts/$1.log" 2>&1; then
    printf '"clean"'
  else
    printf '"failed"'
    tail -n 20 "$parts/$1.log" >&2
  fi
}
memcheck="$(check memcheck build-gpu/bin/gpu_test)" racecheck="$(check racecheck build-gpu/bin/gpu_test)"
layer_memcheck="$(check memcheck build-gpu/bin/gpu_machine_test --gtest_filter='CudaLayerTest.*:CudaDeviceTest.*')"
[[ "$memcheck$racecheck$layer_memcheck" != *failed* ]] || status=1

# part NAME COMMAND...: what it prints is a part of the results; null where it fails, and the others are kept.
part() {
  if ! "${@:2}" > "$parts/$1.json"; then
    printf 'gpu: %s failed (its message is above)\n' "$1" >&2
    printf 'null\n' > "$parts/$1.json"
    status=1
  fi
}
part bench build-gpu/bin/gpu_bench
part samples build-gpu/bin/gpu_samples
printf '{"torch": "not installed"}\n' > "$parts/torch.json"
if python3 -c 'import torch' 2> /dev/null; then
  part torch python3 tests/gpu/bench/compare_torch.py "$parts/bench.json"
else
  printf 'gpu: no python3 with torch here; the kernels are not compared with those of PyTorch\n'
fi

mkdir -p "$(dirname "$out")"
mv "$parts/samples.json" "${out%.json}.samples.json"
{
  printf '{\n"date": "%s",\n"command": "%s",\n' "$(date -u +%FT%TZ)" "$command_line"
  printf '"commit": "%s",\n' "$(git describe --always --dirty 2> /dev/null || printf unknown)"
  printf '"memcheck": %s,\n"racecheck": %s,\n"layerMemcheck": %s,\n"tests":\n' "$memcheck" "$racecheck" "$layer_memcheck"
  cat "$parts/tests.json"
  printf ',\n"machine":\n'
  cat "$parts/machine.json"
  printf ',\n"bench":\n'
  cat "$parts/bench.json"
  printf ',\n"torch":\n'
  cat "$parts/torch.json"
  printf '}\n'
} > "$out"
printf 'gpu: %s; results in %s, samples in %s\n' "$card" "$out" "${out%.json}.samples.json"
exit "$status"
