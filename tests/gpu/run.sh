#!/usr/bin/env bash
# On a machine with one GPU: runs the GPU tests and benchmarks and writes one JSON of results, which grows as parts end.
# Builds them first (a CUDA toolkit, CMake, Ninja and a compiler; no gRPC, Protobuf or SQLite), unless they come packed.
#
# Usage: tests/gpu/run.sh [--stage NAME,...] [--prebuilt DIR | [--deps DIR] [--archs LIST] [-D NAME=VALUE]...] [--limit S]
#                         [--out FILE]
#   --stage NAME,...  which parts, in this order; default all of them:
#                       smoke     device, whole layers and NCCL alone on one rank
#                       kernels   each kernel against the host
#                       bench     each kernel's time as a share of a large copy or of one product
#                       torch     the same operations as PyTorch and Triton have them (needs python3 with torch)
#                       job       layers of a PyTorch job on the card: tests, and times beside plain PyTorch (needs
#                                 python3 with torch, and the Python package, packed or in build/ or build-dev/)
#                       samples   what a profile of the card is fitted to
#                       step      kernels of a step through the libraries of python3, by `moeplan calibrate`
#                                 (needs moeplan, packed or in build/ or build-dev/)
#                       sanitize  memcheck and racecheck of the kernels' tests, memcheck of whole layers
#                       layers    what every backend has to pass, on ranks that share the card
#   --prebuilt DIR    what deploy/gpu-pack.sh made, in place of a build
#   --deps DIR        Eigen, tl::expected and GoogleTest as deploy/gpu-deps.sh unpacks them; else those of the system
#   --archs LIST      the cards to build for, such as 90a-real; default those of cmake/MoeplanCuda.cmake
#   -D NAME=VALUE     passed on to CMake
#   --limit S         seconds that one part may take; default 300
#                     A part that cannot run on this machine is left out; the results say why.
#   --out FILE        where the results go; default build-gpu/results.json. Beside it FILE.samples.json, which a
#                     profile is fitted to, FILE.step.json, a profile, and FILE.logs/, what each part printed
#
# Exit status: 0 when all parts passed, 1 when something failed, 2 when all is built and there is no GPU.
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'gpu: %s\n' "$*" >&2
  exit 1
}

command_line="tests/gpu/run.sh${*:+ $*}"
stages='smoke,kernels,bench,torch,job,samples,step,sanitize,layers'
deps='' out='' prebuilt='' archs='' limit=300
definitions=()
while (($# > 0)); do
  case "$1" in
    --stage | --prebuilt | --deps | --archs | --limit | --out | -D)
      (($# > 1)) || fail "$1: found nothing behind it (tests/gpu/run.sh --help says what it takes)"
      case "$1" in
        --stage) stages="$2" ;;
        --prebuilt) prebuilt="$(realpath -- "$2")" ;;
        --deps) deps="$(realpath -- "$2")" ;;
        --archs) archs="$2" ;;
        --limit) limit="$2" ;;
        --out) out="$(realpath -m -- "$2")" ;;
        -D) definitions+=(-D "$2") ;;
      esac
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "found '$1' (tests/gpu/run.sh --help lists the arguments)" ;;
  esac
done
[[ "$limit" =~ ^[1-9][0-9]*$ ]] || fail "--limit: found '$limit', expected seconds, a whole number above 0"
for stage in ${stages//,/ }; do
  [[ " smoke kernels bench torch job samples step sanitize layers " == *" $stage "* ]] ||
    fail "--stage: found '$stage', expected smoke, kernels, bench, torch, job, samples, step, sanitize or layers"
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out="${out:-$PWD/build-gpu/results.json}"
export PATH="$PATH:/usr/local/cuda/bin"
mkdir -p build-gpu "$(dirname "$out")"

if [[ -n "$prebuilt" ]]; then
  programs="$prebuilt/bin"
  # The toolkit's libraries and NCCL, where the machine has them: in its toolkit or among the packages of its Python.
  libraries="$prebuilt/lib"
  for library in libcublasLt.so libnccl.so; do
    [[ -z "$(ldconfig -p | grep -F "$library")" ]] || continue
    found="$(find /usr/local/cuda*/ /opt /usr/lib /usr/local/lib "$HOME" -xdev -name "$library.*" -print -quit 2> /dev/null || true)"
    [[ -z "$found" ]] || libraries+=":$(dirname "$found")"
  done
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" MOEPLAN_LIBRARY_DIR="$prebuilt/lib/moeplan"
else
  for program in cmake ninja nvcc; do
    command -v "$program" > /dev/null || fail "$program is not installed"
  done
  # A warning of a compiler that nobody here has seen is no reason not to run.
  cmake --preset gpu -D MOEPLAN_WERROR=OFF ${deps:+-D "CMAKE_PREFIX_PATH=$deps/usr"} ${archs:+-D "CMAKE_CUDA_ARCHITECTURES=$archs"} \
    "${definitions[@]}" > build-gpu/configure.log 2>&1 || {
    tail -n 20 build-gpu/configure.log >&2
    fail "cmake could not configure build-gpu/ (its last lines are above, all of them in build-gpu/configure.log)"
  }
  cmake --build build-gpu --parallel "$(nproc)" --target gpu_test gpu_machine_test gpu_bench gpu_samples ||
    fail "the build in build-gpu/ failed (the first error is above)"
  programs="$PWD/build-gpu/bin"
fi

if ! card="$("$programs/gpu_bench" --card 2> build-gpu/card.log)"; then
  grep -q 'no GPU' build-gpu/card.log || fail "gpu_bench did not start: $(tail -n 1 build-gpu/card.log)"
  printf 'gpu: everything is built, but there is no GPU here; nothing was run\n'
  exit 2
fi

logs="${out%.json}.logs"
rm -rf "$logs"
mkdir -p "$logs"
date="$(date -u +%FT%TZ)" commit="$(cat "$prebuilt/commit" 2> /dev/null || git describe --always --dirty 2> /dev/null || printf unknown)"
command_line="${command_line//\\/\\\\}" command_line="${command_line//\"/\\\"}"
names=() seconds=() outcomes=() reasons=()

# All that is known by now, after each part, so that a machine that is taken away leaves what it did.
assemble() {
  local i
  {
    printf '{\n"card": "%s",\n"date": "%s",\n"command": "%s",\n"commit": "%s",\n"parts": {' \
      "$card" "$date" "$command_line" "$commit"
    for i in "${!names[@]}"; do
      ((i == 0)) || printf ','
      printf '\n"%s": {"outcome": "%s", "seconds": %d' "${names[i]}" "${outcomes[i]}" "${seconds[i]}"
      [[ -z "${reasons[i]}" ]] || printf ', "reason": "%s"' "${reasons[i]}"
      if [[ -s "$logs/${names[i]}.json" ]]; then
        printf ', "result":\n'
        cat "$logs/${names[i]}.json"
      fi
      printf '}'
    done
    printf '\n}}\n'
  } > "$out.new"
  mv "$out.new" "$out"
}

status=0
# part NAME COMMAND...: runs it under the limit; what it prints is in NAME.log, and a NAME.json that it writes, or that
# `printed NAME` makes of its output, is a part of the results.
part() {
  local name="$1" began="$SECONDS" outcome=passed code=0
  shift
  timeout --kill-after=10 "$limit" "$@" > "$logs/$name.log" 2>&1 || code=$?
  case "$code" in
    0) ;;
    124 | 137) outcome="stopped after $limit s" ;;
    *) outcome="ended with $code" ;;
  esac
  if [[ "$code" != 0 ]]; then
    status=1
    printf 'gpu: %s: %s; its last lines:\n' "$name" "$outcome" >&2
    grep -E '\[  FAILED|Failure$|ERROR|error' "$logs/$name.log" | head -n 20 >&2 || true
    tail -n 8 "$logs/$name.log" >&2
  fi
  names+=("$name") seconds+=($((SECONDS - began))) outcomes+=("$outcome") reasons+=('')
  printf 'gpu: %-18s %-20s %4d s\n' "$name" "$outcome" $((SECONDS - began))
  assemble
}
# left_out NAME WHY: the results say so of a part that cannot run here; nothing has failed.
left_out() {
  names+=("$1") seconds+=(0) outcomes+=('left out') reasons+=("$2")
  printf 'gpu: %-18s left out: %s\n' "$1" "$2"
  assemble
}
# to FILE COMMAND...: its standard output is FILE, whole or not there.
to() {
  "${@:2}" > "$1.new" || return
  mv "$1.new" "$1"
}
export -f to
test_part() { part "$1" "$programs/$2" --gtest_brief=1 --gtest_output="json:$logs/$1.json" "${@:3}"; }
json_part() { part "$1" bash -c 'to "$@"' to "$logs/$1.json" "${@:2}"; }
checked() {
  set -- "${1//\//-}" "${@:2}"
  if command -v compute-sanitizer > /dev/null; then
    part "$1.$2" compute-sanitizer --tool "$2" --error-exitcode 1 "$programs/$3" --gtest_brief=1 "${@:4}"
  else
    left_out "$1.$2" 'no compute-sanitizer here'
  fi
}

# The command, packed or of a build here; nothing where there is none.
find_moeplan() {
  local found
  for found in "$programs/moeplan" "$PWD/build/bin/moeplan" "$PWD/build-dev/bin/moeplan"; do
    [[ ! -x "$found" ]] || { printf '%s' "$found"; return; }
  done
}

for stage in ${stages//,/ }; do
  case "$stage" in
    smoke)
      test_part device gpu_machine_test --gtest_filter='CudaDeviceTest.*'
      test_part layer gpu_machine_test --gtest_filter='CudaLayerTest.*'
      if "$programs/gpu_machine_test" --gtest_list_tests | grep '^NcclAloneTest' > /dev/null; then
        test_part nccl gpu_machine_test --gtest_filter='NcclAloneTest.*'
      else
        left_out nccl 'built without NCCL'
      fi
      ;;
    kernels) test_part kernels gpu_test ;;
    bench) json_part bench "$programs/gpu_bench" ;;
    torch)
      if ! python3 -c 'import torch' 2> /dev/null; then
        left_out torch 'no python3 with torch here'
      elif [[ -s "$logs/bench.json" ]]; then
        json_part torch python3 tests/gpu/bench/compare_torch.py "$logs/bench.json"
      else
        left_out torch 'it compares with the results of bench, which are not among these'
      fi
      ;;
    job)
      package="$prebuilt/python"
      for build in build build-dev; do
        [[ -n "$prebuilt" || -f "$package/moeplan/libmoeplan_gpu.so" ]] || package="$PWD/$build/python"
      done
      if ! python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2> /dev/null; then
        left_out job 'no python3 here whose torch finds the card'
      elif [[ ! -f "$package/moeplan/libmoeplan_gpu.so" ]]; then
        left_out job 'no Python package with libmoeplan_gpu.so here, packed or in build/ or build-dev/'
      else
        job=(env "PYTHONPATH=$package" "MOEPLAN_LIBRARY=$package/moeplan/libmoeplan_gpu.so")
        # Plans of captured steps are the command's; without it the tests of those are skipped, and say so.
        moeplan="$(find_moeplan)"
        [[ -z "$moeplan" ]] || job+=("MOEPLAN_BIN=$moeplan")
        job+=(python3 -B)
        part job.tests "${job[@]}" tests/python/run.py tests/python/torch_card_test.py
        if python3 -c 'import transformers' 2> /dev/null; then
          part job.replace "${job[@]}" tests/python/run.py tests/python/replace_test.py -k 'transformers and cuda'
        else
          left_out job.replace 'no transformers here'
        fi
        part job.bench "${job[@]}" tests/bench/card_layer_bench.py --json "$logs/job.bench.json"
      fi
      ;;
    samples)
      part samples bash -c 'to "$@"' to "${out%.json}.samples.json" "$programs/gpu_samples"
      ;;
    step)
      moeplan="$(find_moeplan)"
      if [[ -z "$moeplan" ]]; then
        left_out step 'no moeplan here, packed or in build/ or build-dev/'
        continue
      fi
      # Less than the limit, so that what a spent budget has measured is kept.
      part step bash -c 'to "$@"' to "${out%.json}.step.json" "$moeplan" calibrate --local 1 --backend cuda \
        --db "$logs/step.db" --kernels-of 8x8 --budget $((limit * 3 / 4))s --json
      ;;
    sanitize)
      checked kernels memcheck gpu_test
      # It slows kernels a hundredfold, so each suite has a limit of its own.
      for suite in $("$programs/gpu_test" --gtest_list_tests | sed -n 's/^\([A-Za-z0-9_/]*\)\..*/\1/p'); do
        checked "$suite" racecheck gpu_test --gtest_filter="$suite.*"
      done
      checked layer memcheck gpu_machine_test --gtest_filter='CudaLayerTest.*:CudaDeviceTest.*'
      ;;
    layers)
      test_part layers gpu_machine_test --gtest_filter=-'CudaDeviceTest.*:CudaLayerTest.*:NcclAloneTest.*'
      ;;
  esac
done
assemble
printf 'gpu: %s; results in %s\n' "$card" "$out"
exit "$status"
