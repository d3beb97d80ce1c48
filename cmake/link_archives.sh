#!/usr/bin/env bash
# A linker's launcher: links archives in place of the shared libraries that a command names by their paths, so that a
# program needs nothing of its machine but glibc.
#
# Usage: cmake/link_archives.sh LINKER ARGUMENTS...
set -euo pipefail

arguments=() archives=()
for argument in "$@"; do
  case "$argument" in
    /*.so | /*.so.*)
      archive="${argument%%.so*}.a"
      [[ -f "$archive" ]] || {
        printf 'link_archives: found no %s beside %s\n' "${archive##*/}" "$argument" >&2
        exit 1
      }
      archives+=("$archive")
      ;;
    *) arguments+=("$argument") ;;
  esac
done
# gRPC's shared library names these to nobody else, but its archive needs them.
folder="$(dirname "$(printf '%s\n' "${archives[@]}" | grep -m 1 '/libgrpc\.a$')")"
archives+=("$folder/libre2.a" "$folder"/libabsl_*.a)
exec "${arguments[@]}" -Wl,--start-group "${archives[@]}" -Wl,--end-group -static-libstdc++ -static-libgcc
