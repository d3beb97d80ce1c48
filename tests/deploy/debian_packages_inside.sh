#!/usr/bin/env bash
# The part of debian_packages.sh inside namespaces of its own: what is written here lands in memory, and the upper layer of
# the overlay shows what was left behind.
#
# Usage: debian_packages_inside.sh EMPTY_FOLDER PACKAGE...
set -euo pipefail
export LC_ALL=C
overlay="$1"
shift
packages=("$@")

fail() {
  printf 'debian: %s\n' "$*" >&2
  exit 1
}

make_root() {
  mount -t tmpfs tmpfs "$overlay"
  mkdir "$overlay/upper" "$overlay/work" "$overlay/root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$overlay/upper,workdir=$overlay/work" "$overlay/root" 2> /dev/null || {
    printf 'debian: SKIPPED: packed; this machine mounts no overlay\n'
    exit 77
  }
  root="$overlay/root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  ip link set lo up
  cp "${packages[@]}" "$root/tmp/"
  packages=("${packages[@]/#*\///tmp/}")
}

inside() { chroot "$root" "$@"; }
as_nobody() { inside setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }

run_dpkg() {
  inside dpkg "$@" > "$overlay/dpkg.log" 2>&1 || {
    tail -n 20 "$overlay/dpkg.log" >&2
    fail "dpkg $1 failed (its last lines are above)"
  }
}

check_installed() {
  local version
  # shellcheck disable=SC2016  # dpkg-query's own variable.
  version="$(inside dpkg-query -W -f '${Version}' moeplan)"
  [[ "$(as_nobody moeplan --version)" == "moeplan $version" ]] || fail "moeplan --version: expected moeplan $version"
  [[ "$(inside stat -c '%U:%G %a' /var/lib/moeplan)" == "moeplan:moeplan 750" ]] || fail "/var/lib/moeplan: wrong owner or mode"
  [[ "$(inside stat -c '%U:%G %a' /etc/moeplan)" == "root:moeplan 750" ]] || fail "/etc/moeplan: wrong owner or mode"
  [[ "$(inside getent passwd moeplan)" == *:/var/lib/moeplan:/usr/sbin/nologin ]] || fail "user moeplan: expected no login"
  inside systemd-analyze verify moeplan-planner.service moeplan-agent.service 2>&1 | (! grep .) ||
    fail "the installed units: systemd-analyze verify has complaints (above)"
}

# Plans from an installed example, and simulates an installed cluster, which loads the simulator.
check_command() {
  local examples=/usr/share/moeplan/examples
  as_nobody moeplan plan --profile $examples/profile-8x8.json --workload $examples/workload.json > "$overlay/plan" ||
    fail "no plan for the installed example"
  as_nobody env HOME=/tmp moeplan calibrate --simulated $examples/cluster.json --layouts $examples/grid-8x4.json \
    --db /tmp/simulated.db --budget 1s > "$overlay/simulated" || fail "no calibration of the installed simulated cluster"
}

# Starts, as its user, what ExecStart of unit $1 says with its Environment and EnvironmentFile, as systemd would.
start_unit() {
  local unit="$root/lib/systemd/system/$1" environment start
  environment="$(sed -n 's/^Environment=//p' "$unit")"
  start="$(sed -n 's/^ExecStart=//p' "$unit")"
  chroot "$root" setpriv --reuid=moeplan --regid=moeplan --init-groups --no-new-privs env -i HOME=/var/lib/moeplan sh -c "
    set -a; $environment; . '$(sed -n 's/^EnvironmentFile=-//p' "$unit")'; exec $start" > "$overlay/unit.log" 2>&1 &
  unit_process=$!
}

http_status() { # http_status PORT PATH
  (
    exec 3<> "/dev/tcp/127.0.0.1/$1" || exit 1
    printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
    head -n 1 <&3 | cut -d ' ' -f 2
  ) 2> /dev/null
}

check_planner() {
  local deadline=$((SECONDS + 30))
  inside systemctl enable moeplan-planner.service 2> /dev/null
  start_unit moeplan-planner.service
  until [[ "$(http_status 7080 /healthz)" == 200 ]]; do
    kill -0 $unit_process 2> /dev/null || fail "the planner of the unit ended: $(tail -n 1 "$overlay/unit.log")"
    ((SECONDS < deadline)) || fail "the planner of the unit is not healthy after 30 s: $(tail -n 1 "$overlay/unit.log")"
    sleep 0.05
  done
  inside test -f /var/lib/moeplan/moeplan.db || fail "the planner of the unit made no /var/lib/moeplan/moeplan.db"
  kill -TERM $unit_process
  wait $unit_process || fail "the planner of the unit ended with $? on SIGTERM: $(tail -n 1 "$overlay/unit.log")"
}

# A second installation keeps what was set by hand; a removal keeps it and the database.
check_reinstallation() {
  inside sh -c 'echo "# by hand" >> /etc/default/moeplan-planner'
  run_dpkg --install "${packages[@]}"
  inside grep -q '^# by hand' /etc/default/moeplan-planner || fail "a second installation lost /etc/default/moeplan-planner"
  run_dpkg --remove "${names[@]}"
  inside test ! -e /usr/bin/moeplan || fail "after removal: /usr/bin/moeplan is still there"
  inside test -f /var/lib/moeplan/moeplan.db -a -f /etc/default/moeplan-planner ||
    fail "after removal: the database or the configuration is gone"
}

# What is in the upper layer, dpkg's, adduser's and man-db's own records aside.
left_behind() {
  (cd "$overlay/upper" && find . \( ! -type d -o -name '*moeplan*' \) \
    -regextype posix-extended ! -regex '\./var/(lib/dpkg|log|cache)/.*' ! -regex '\./etc/g?(passwd|shadow|group|subuid|subgid)-?' \
    ! -regex '\./etc/(gshadow|subgid|subuid|\.pwd\.lock)-?')
}

check_purge() {
  run_dpkg --purge "${names[@]}"
  ! inside getent passwd moeplan > /dev/null || fail "after a purge: user moeplan is still there"
  ! inside getent group moeplan > /dev/null || fail "after a purge: group moeplan is still there"
  local left
  left="$(left_behind)"
  [[ -z "$left" ]] || fail "after a purge these are left: $left"
}

make_root
mapfile -t names < <(for package in "${packages[@]}"; do inside dpkg-deb --field "$package" Package; done)
run_dpkg --install "${packages[@]}"
check_installed
check_command
check_planner
check_reinstallation
check_purge
printf 'debian: installed, ran, removed and purged %s\n' "${names[*]}"
