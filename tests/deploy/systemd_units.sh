#!/usr/bin/env bash
# systemd finds nothing wrong with the units, and says how exposed they are: 0 is a locked room, 10 an open street.
#
# Usage: systemd_units.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
export LC_ALL=C
source_dir="$1" build_dir="$2"

fail() {
  printf 'systemd: %s\n' "$*" >&2
  exit 1
}

command -v systemd-analyze > /dev/null || {
  printf 'systemd: SKIPPED: systemd-analyze is not here (Debian: systemd)\n'
  exit 77
}

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# The command is not installed here.
sed -s -e "s|=/usr/bin/moeplan |=$build_dir/bin/moeplan |" -e '/^Documentation=/d' \
  "$source_dir/deploy/systemd/moeplan-planner.service" > "$scratch/moeplan-planner.service"
sed -s -e "s|=/usr/bin/moeplan |=$build_dir/bin/moeplan |" -e '/^Documentation=/d' \
  "$source_dir/deploy/systemd/moeplan-agent.service" > "$scratch/moeplan-agent.service"
complaints="$(systemd-analyze verify "$scratch"/*.service 2>&1)" || fail "systemd-analyze verify: $complaints"
[[ -z "$complaints" ]] || fail "systemd-analyze verify: $complaints"

# check_exposure UNIT TENTHS: at most so exposed.
check_exposure() {
  systemd-analyze security --offline=true --threshold="$2" "$source_dir/deploy/systemd/$1" > "$scratch/security" ||
    fail "$1: $(tail -n 1 "$scratch/security"), expected at most $2 tenths"
  printf 'systemd: %s\n' "$(tail -n 1 "$scratch/security")"
}
check_exposure moeplan-planner.service 13
check_exposure moeplan-agent.service 22
