#!/usr/bin/env bash
# Makes a folder of GPU tests and benchmarks for a machine with a card, where nothing needs to be built or installed:
# stripped Release programs and the libraries they need, without CUDA's and NCCL's, which that machine has. With a build of
# the whole moeplan it takes `moeplan`, its CUDA backend and the Python package along. Needs nvcc here, and no card.
#
# Usage: deploy/gpu-pack.sh [--archs LIST] [--moeplan BUILD] DIR
#   --archs LIST      the cards to build for, such as 90a-real for H100 and H200; default 90a-real
#   --moeplan BUILD   a build folder with bin/moeplan and lib/moeplan/libmoeplan_cuda.so, such as build; its python/,
#                     where it has one with libmoeplan_gpu.so
#
# There: tests/gpu/run.sh --prebuilt DIR
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'gpu-pack: %s\n' "$*" >&2
  exit 1
}

archs=90a-real moeplan='' target=''
while (($# > 0)); do
  case "$1" in
    --archs | --moeplan)
      (($# > 1)) || fail "$1: found nothing behind it (deploy/gpu-pack.sh --help says what it takes)"
      [[ "$1" == --archs ]] && archs="$2" || moeplan="$(realpath -- "$2")"
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    -*) fail "found '$1' (deploy/gpu-pack.sh --help lists the arguments)" ;;
    *)
      [[ -z "$target" ]] || fail "found '$target' and '$1', expected one folder"
      target="$(realpath -m -- "$1")"
      shift
      ;;
  esac
done
[[ -n "$target" ]] || fail "found no folder (deploy/gpu-pack.sh --help says what it takes)"
for file in ${moeplan:+"$moeplan/bin/moeplan" "$moeplan/lib/moeplan/libmoeplan_cuda.so"}; do
  [[ -f "$file" ]] || fail "--moeplan: found no $file; build moeplan and moeplan_cuda there first"
done
export PATH="$PATH:/usr/local/cuda/bin"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake --preset gpu -D MOEPLAN_WERROR=OFF -D "CMAKE_CUDA_ARCHITECTURES=$archs" > /dev/null
programs=(gpu_test gpu_machine_test gpu_bench gpu_samples)
cmake --build build-gpu --parallel "$(nproc)" --target "${programs[@]}" > build-gpu/build.log ||
  { tail -n 20 build-gpu/build.log >&2; fail "the build in build-gpu/ failed (its last lines are above)"; }

[[ ! -e "$target" || -f "$target/commit" || -z "$(ls -A "$target")" ]] ||
  fail "$target has other files; expected a new folder, or one that this script made"
rm -rf "$target"
mkdir -p "$target/bin" "$target/lib/moeplan"
for program in "${programs[@]}"; do strip -o "$target/bin/$program" "build-gpu/bin/$program"; done
if [[ -n "$moeplan" ]]; then
  strip -o "$target/bin/moeplan" "$moeplan/bin/moeplan"
  strip -o "$target/lib/moeplan/libmoeplan_cuda.so" "$moeplan/lib/moeplan/libmoeplan_cuda.so"
  if [[ -f "$moeplan/python/moeplan/libmoeplan_gpu.so" ]]; then
    cp -r "$moeplan/python" "$target/python"
    rm -f "$target/python/moeplan/libmoeplan.so"  # The other one runs on the host, too.
  fi
fi
# All but glibc, which is the machine's own, as are the driver's, the toolkit's and NCCL.
for program in "$target"/bin/* "$target"/lib/moeplan/* "$target"/python/moeplan/*.so; do
  [[ -f "$program" ]] || continue
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so|/lib(cu|nccl|nv)[^/]*\.so' |
  xargs -r -I{} cp -L {} "$target/lib/"
git describe --always --dirty > "$target/commit" 2> /dev/null || printf 'unknown\n' > "$target/commit"
printf 'gpu-pack: %s in %s, for %s\n' "$(du -sh "$target" | cut -f1)" "$target" "$archs"
