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

# The command is not installed here, and haproxy perhaps not either.
units=(moeplan-planner.service moeplan-front.service moeplan-agent.service)
for unit in "${units[@]}"; do
  sed -e "s|=/usr/bin/moeplan |=$build_dir/bin/moeplan |" -e '/^Documentation=/d' -e 's|=/usr/sbin/haproxy |=/bin/true |' \
    "$source_dir/deploy/systemd/$unit" > "$scratch/$unit"
done
complaints="$(systemd-analyze verify "$scratch"/*.service 2>&1)" || fail "systemd-analyze verify: $complaints"
[[ -z "$complaints" ]] || fail "systemd-analyze verify: $complaints"

# check_exposure UNIT TENTHS: at most so exposed.
check_exposure() {
  systemd-analyze security --offline=true --threshold="$2" "$source_dir/deploy/systemd/$1" > "$scratch/security" ||
    fail "$1: $(tail -n 1 "$scratch/security"), expected at most $2 tenths"
  printf 'systemd: %s\n' "$(tail -n 1 "$scratch/security")"
}
check_exposure moeplan-planner.service 13
check_exposure moeplan-front.service 15

# HAProxy itself finds nothing wrong with the configuration of the unit, in each of the ways it may be used.
haproxy="$(PATH="$PATH:/usr/sbin" command -v haproxy)" || {
  printf 'systemd: not asked: haproxy is not here (Debian: haproxy)\n'
  haproxy=
}
# check_front NAME=VALUE...: with what the unit and /etc/default set, and these.
check_front() {
  local complaints
  complaints="$(
    set -a
    # shellcheck disable=SC1091  # The file of this tree.
    . "$source_dir/deploy/systemd/moeplan-front"
    unset MOEPLAN_FRONT_CERTIFICATE
    env "$@" "$haproxy" -c -q -f "$source_dir/deploy/front/haproxy.cfg" 2>&1
  )" || fail "haproxy does not take deploy/front/haproxy.cfg with $*: $complaints"
  [[ -z "$complaints" ]] || fail "haproxy has complaints about deploy/front/haproxy.cfg with $*: $complaints"
}
if [[ -n "$haproxy" ]]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=planner.example \
    -keyout "$scratch/tls.key" -out "$scratch/tls.crt" 2> /dev/null
  check_front _=
  check_front "MOEPLAN_FRONT_CERTIFICATE=$scratch/tls.crt"
  check_front "MOEPLAN_FRONT_CERTIFICATE=$scratch/tls.crt" "MOEPLAN_FRONT_CLIENT_CA=$scratch/tls.crt"
fi
check_exposure moeplan-agent.service 22
