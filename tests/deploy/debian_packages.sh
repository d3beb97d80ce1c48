#!/usr/bin/env bash
# Packs what is built, asks lintian, and then installs, runs, reinstalls, removes and purges the packages with dpkg, under a
# systemd of their own on an overlay of this machine that is gone with the test (debian_packages_inside.sh).
#
# Usage: debian_packages.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
export LC_ALL=C
source_dir="$1" build_dir="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

fail() {
  printf 'debian: %s\n' "$*" >&2
  exit 1
}
skip() {
  printf 'debian: SKIPPED: %s\n' "$*"
  exit 77
}

for program in cpack dpkg dpkg-shlibdeps gzip strip; do
  command -v "$program" > /dev/null || skip "$program is not here (Debian: dpkg-dev, binutils)"
done

scratch="$(mktemp -d)"
cgroup=
# Groups go once their processes have gone.
clean_up() {
  local deadline=$((SECONDS + 10))
  until [[ ! -d "$cgroup" ]] || find "$cgroup" -depth -type d -exec rmdir {} + 2> /dev/null || ((SECONDS > deadline)); do sleep 0.1; done
  rm -rf "$scratch"
}
trap clean_up EXIT

components="$(sed -n 's/^set(CPACK_COMPONENTS_ALL "\(.*\)")$/\1/p' "$build_dir/CPackConfig.cmake")"
# Who has nvcc need not have built the backend.
[[ -e "$build_dir/lib/moeplan/libmoeplan_cuda.so" ]] || components="${components/;cuda;debian-cuda/}"
# gzip: xz takes longer than all the rest.
cpack --config "$build_dir/CPackConfig.cmake" -B "$scratch" -D "CPACK_COMPONENTS_ALL=$components" \
  -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip > "$scratch/log" 2>&1 || {
  tail -n 20 "$scratch/log" >&2
  fail "cpack could not pack $build_dir (its last lines are above)"
}
rm -r "$scratch/_CPack_Packages"
packages=("$scratch"/*.deb)
printf 'debian: packed %s\n' "${packages[*]##*/}"
chmod 755 "$scratch" # For lintian's and moeplan's users.

for package in "${packages[@]}"; do
  # A path starts after what is no part of one: /src is not named by x/src/y.
  named="$(dpkg-deb --fsys-tarfile "$package" | grep -aoE -m 1 "(^|[^A-Za-z0-9_./-])($source_dir|$build_dir)/[a-z_/]{0,40}")" || true
  [[ -z "$named" ]] || fail "${package##*/} names the tree it was built in: $named"
done

if command -v lintian > /dev/null; then
  lintian --allow-root --fail-on error,warning "${packages[@]}" || fail "lintian has complaints (above)"
else
  printf 'debian: not asked: lintian is not here (Debian: lintian)\n'
fi

((EUID == 0)) || skip "packed; installing needs root"
for package in "${packages[@]}"; do
  name="$(dpkg-deb --field "$package" Package)"
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2> /dev/null)" != installed ]] || skip "packed; $name is installed here already"
done
mkdir "$scratch/overlay"
unshare --mount --net --pid --ipc --fork --kill-child true 2> /dev/null || skip "packed; this machine makes no namespaces"
# A control group of its own, without which no second systemd runs.
groups="$(findmnt --types cgroup2 --noheadings --output TARGET --first-only)" || true
if [[ -n "$groups" ]] && mkdir "$groups/moeplan-test-$$" 2> /dev/null; then cgroup="$groups/moeplan-test-$$"; fi
unshare --mount --net --pid --ipc --fork --kill-child --mount-proc \
  "$here/debian_packages_inside.sh" "$scratch/overlay" "$cgroup" "${packages[@]}"
