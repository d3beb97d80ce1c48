#!/usr/bin/env bash
# The part of debian_packages.sh inside namespaces of its own: what is written here lands in memory, and the upper layer of
# the overlay shows what was left behind.
#
# Usage: debian_packages_inside.sh EMPTY_FOLDER CGROUP PACKAGE...
#   CGROUP   an empty control group for a systemd; '': units are run by hand, without what systemd shuts around them
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
umask 022 # As an administrator has it, whatever the packages were made with.
export LC_ALL=C
overlay="$1" cgroup="$2"
shift 2
packages=("$@")

fail() {
  printf 'debian: %s\n' "$*" >&2
  exit 1
}

# must_mount WHAT ARGUMENTS...: a machine that forbids a mount can pack, no more.
must_mount() {
  local what="$1"
  shift
  mount "$@" 2> "$overlay/../mount.log" || {
    printf 'debian: SKIPPED: packed; this machine mounts no %s: %s\n' "$what" "$(head -n 1 "$overlay/../mount.log")"
    exit 77
  }
}

make_root() {
  must_mount tmpfs -t tmpfs tmpfs "$overlay"
  mkdir "$overlay/upper" "$overlay/work" "$overlay/root"
  must_mount overlay -t overlay overlay -o "lowerdir=/,upperdir=$overlay/upper,workdir=$overlay/work" "$overlay/root"
  root="$overlay/root"
  must_mount proc -t proc proc "$root/proc"
  must_mount sysfs -t sysfs sysfs "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  ip link set lo up
  # Images of containers have one that forbids packages to stop services.
  [[ ! -e "$root/usr/sbin/policy-rc.d" ]] || mount --bind /dev/null "$root/usr/sbin/policy-rc.d"
  mkdir "$root/run/packages" "$root/run/checks" "$root/run/empty"
  cp "${packages[@]}" "$root/run/packages/"
  cp "$here/one_rank.c" "$here/one_rank.py" "$root/run/checks/"
  packages=("${packages[@]/#*\///run/packages/}")
}

# Runs a command on the overlay; within the systemd there, once one is booted.
by_systemd=0
inside() {
  if ((by_systemd)); then
    nsenter --target "$by_systemd" --all "$@"
  else
    chroot "$root" "$@"
  fi
}
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
  local units=(moeplan-planner.service moeplan-agent.service)
  # Without Debian's haproxy, which the package only suggests, there is no program for the front.
  [[ ! -x "$root/usr/sbin/haproxy" ]] || units+=(moeplan-front.service)
  inside systemd-analyze verify "${units[@]}" 2>&1 | (! grep .) ||
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

# as_user COMMAND...: nobody, in an empty folder and with an environment that names nothing of a build tree.
as_user() { as_nobody env -i -C /run/empty HOME=/tmp PATH=/usr/bin:/bin "$@"; }

is_packed() {
  [[ " ${names[*]} " == *" $1 "* ]] && return
  printf 'debian: %s is not among the packages of this build\n' "$1"
  return 1
}

# A program in C compiles against the installed header and library, and runs a rank.
check_library() {
  is_packed libmoeplan0 || return 0
  [[ -x "$root/usr/bin/cc" ]] || {
    printf 'debian: no program was compiled against libmoeplan-dev: cc is not here (Debian: gcc)\n'
    return
  }
  as_user cc -std=c99 -Wall -Werror /run/checks/one_rank.c -o /tmp/one_rank -lmoeplan -lm ||
    fail "the installed libmoeplan-dev: a program does not compile (above)"
  as_user /tmp/one_rank || fail "the installed libmoeplan0: a rank of a C program finds what it did not expect (above)"
}

# The Python package is found from anywhere, is known to pip, and runs layers with the library of libmoeplan0.
check_python() {
  is_packed python3-moeplan || return 0
  local version folder=/usr/lib/python3/dist-packages/moeplan library found
  # shellcheck disable=SC2016  # dpkg-query's own variable.
  version="$(inside dpkg-query -W -f '${Version}' python3-moeplan)"
  found="$(as_user python3 -c 'import importlib.metadata, moeplan.library
moeplan.library.load()
print(importlib.metadata.version("moeplan"), moeplan.__file__)')" || fail "the installed Python package does not open (above)"
  [[ "$found" == "$version $folder/__init__.py" ]] || fail "python3: found moeplan $found, expected $version $folder/__init__.py"
  ! as_user python3 -m pip --version > /dev/null 2>&1 ||
    [[ "$(as_user python3 -m pip list 2> /dev/null)" == *$'\n'"moeplan "* ]] || fail "pip list does not have the installed moeplan"
  ! inside find "$folder" -name '*.so*' | grep . || fail "the installed Python package has a library of its own (above)"
  # Users could not keep what they compile.
  [[ -n "$(inside find $folder/__pycache__ -name 'planner.*.pyc')" ]] || fail "the installed Python package is not compiled"
  as_user python3 -c 'import torch' 2> /dev/null || {
    printf 'debian: no layer was run in PyTorch: torch is not here (Debian: python3-torch)\n'
    return
  }
  library="$(inside readlink -f "$(inside dpkg -L libmoeplan0 | grep '/libmoeplan\.so\.0$')")"
  as_user python3 /run/checks/one_rank.py "$library" || fail "the installed Python package runs no layer (above)"
}

# ---- Units -----------------------------------------------------------------------------------------------------------

declare -A process_of

# A systemd on the overlay that starts nothing by itself.
boot_systemd() {
  [[ -n "$cgroup" ]] || return 1
  local deadline=$((SECONDS + 60))
  mkdir -p "$root/run/systemd/system"
  printf '[Unit]\nDescription=Nothing but what the test starts\n' > "$root/run/systemd/system/test.target"
  # shellcheck disable=SC2016  # Variables of the shell within.
  bash -c '
    echo 0 > "$2/cgroup.procs"
    exec unshare --mount --pid --cgroup --uts --fork --kill-child bash -c "
      mount -t cgroup2 cgroup2 $1/sys/fs/cgroup && mount -t proc proc $1/proc && mount --rbind $1 $1 && cd $1 &&
        mkdir run/old && pivot_root . run/old && umount --lazy /run/old &&
        exec env container=test /lib/systemd/systemd --system --unit=test.target --log-target=console"
  ' boot "$root" "$cgroup" < /dev/null > "$overlay/systemd.log" 2>&1 &
  process_of[systemd]=$!
  until by_systemd="$(pgrep --parent "${process_of[systemd]}")" && inside systemctl is-active --quiet test.target 2> /dev/null; do
    by_systemd=0
    kill -0 "${process_of[systemd]}" 2> /dev/null || return 1
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# As its user, what ExecStart of a unit says with its Environment and EnvironmentFile.
start_by_hand() {
  local unit="$root/lib/systemd/system/$1" environment start
  environment="$(sed -n 's/^Environment=//p' "$unit")"
  start="$(sed -n 's/^ExecStart=//p' "$unit")"
  chroot "$root" setpriv --reuid=moeplan --regid=moeplan --init-groups --no-new-privs env -i HOME=/var/lib/moeplan sh -c "
    set -a; $environment; . '$(sed -n 's/^EnvironmentFile=-//p' "$unit")'; exec $start" > "$overlay/$1.log" 2>&1 &
  process_of[$1]=$!
}

start_unit() {
  if ((by_systemd)); then
    inside systemctl start "$1" || fail "$1 does not start: $(why_ended "$1")"
  else
    start_by_hand "$1"
  fi
}

is_running() {
  if ((by_systemd)); then
    inside systemctl is-active --quiet "$1"
  else
    kill -0 "${process_of[$1]}" 2> /dev/null
  fi
}

why_ended() {
  if ((by_systemd)); then
    inside systemctl show --property=Result,ExecMainStatus,StatusErrno "$1" | xargs
    inside journalctl --no-pager --output=cat --lines=5 --unit="$1"
  else
    tail -n 1 "$overlay/$1.log"
  fi
}

# stop_unit UNIT: ends it with SIGTERM, which must be the end that it chooses itself.
stop_unit() {
  if ((by_systemd)); then
    inside systemctl stop "$1"
    [[ "$(inside systemctl show --property=Result --value "$1")" == success &&
      "$(inside systemctl show --property=ExecMainStatus --value "$1")" == 0 ]] || fail "$1 did not end well: $(why_ended "$1")"
  else
    kill -TERM "${process_of[$1]}"
    wait "${process_of[$1]}" || fail "$1 ended with $? on SIGTERM: $(why_ended "$1")"
  fi
}

# await UNIT WHAT COMMAND...: until it succeeds, while the unit runs, at most 60 s.
await() {
  local unit="$1" what="$2" deadline=$((SECONDS + 60))
  shift 2
  until "$@"; do
    is_running "$unit" || fail "$unit ended: $(why_ended "$unit")"
    ((SECONDS < deadline)) || fail "$what: waited 60 s. $(why_ended "$unit")"
    sleep 0.05
  done
}

http_get() {
  (
    exec 3<> /dev/tcp/127.0.0.1/7080 || exit 1
    printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&3
    cat <&3
  ) 2> /dev/null
}
is_healthy() { [[ "$(http_get /healthz | head -n 1)" == "HTTP/1.1 200 "* ]]; }
has_an_agent() { http_get /metrics | grep -q '^moeplan_agents{state="attached"} 1'; }

check_units() {
  if ! boot_systemd; then
    rm -rf "$root/run/systemd"
    printf 'debian: units are run by hand: no second systemd runs on this machine\n'
  fi
  inside systemctl enable moeplan-planner.service 2> /dev/null
  start_unit moeplan-planner.service
  await moeplan-planner.service "a planner in good health" is_healthy
  inside test -f /var/lib/moeplan/moeplan.db || fail "the planner of the unit made no /var/lib/moeplan/moeplan.db"
  if inside moeplan --help | grep -q '^ *agent .*(not there yet)'; then
    printf 'debian: moeplan-agent.service was not started: moeplan agent is not there yet\n'
  else
    start_unit moeplan-agent.service
    await moeplan-agent.service "an agent that the planner has" has_an_agent
    # The agent's ranks measure within what is shut around them.
    inside moeplan calibrate --planner 127.0.0.1:7070 --budget 2s > "$overlay/calibration" 2>&1 ||
      fail "no calibration through the units: $(tail -n 1 "$overlay/calibration"); $(why_ended moeplan-agent.service)"
    stop_unit moeplan-agent.service
  fi
  check_front
  stop_unit moeplan-planner.service
}

# The front before the planner of the unit, on ports beside its own and without TLS.
check_front() {
  [[ -x "$root/usr/sbin/haproxy" ]] || {
    printf 'debian: moeplan-front.service was not started: haproxy is not here (Debian: haproxy)\n'
    return
  }
  ((by_systemd)) || {
    printf 'debian: moeplan-front.service was not started: it tells a systemd when it is ready\n'
    return
  }
  inside sh -c 'openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -keyout /etc/moeplan/tls.key -out /etc/moeplan/tls.crt 2> /dev/null &&
    chown root:moeplan /etc/moeplan/tls.* && chmod 640 /etc/moeplan/tls.* &&
    sed -i -e "s/0:7070/0:7170/" -e "s/0:7080/0:7180/" -e "s/1:7071/1:7070/" -e "s/1:7081/1:7080/" /etc/default/moeplan-front'
  start_unit moeplan-front.service
  inside moeplan call ListProfiles '{}' --planner 127.0.0.1:7170 --tls-ca /etc/moeplan/tls.crt > "$overlay/front" 2>&1 ||
    fail "no call through the front: $(tail -n 1 "$overlay/front"); $(why_ended moeplan-front.service)"
  stop_unit moeplan-front.service
}

# ---- Coming and going ------------------------------------------------------------------------------------------------

# A second installation keeps what was set by hand; a removal keeps it and the database, and stops what runs.
check_reinstallation() {
  inside sh -c 'echo "# by hand" >> /etc/default/moeplan-planner'
  ((!by_systemd)) || start_unit moeplan-planner.service
  run_dpkg --install "${packages[@]}"
  inside grep -q '^# by hand' /etc/default/moeplan-planner || fail "a second installation lost /etc/default/moeplan-planner"
  ((!by_systemd)) || is_running moeplan-planner.service || fail "a second installation stopped the planner for good"
  run_dpkg --remove "${names[@]}"
  ((!by_systemd)) || ! is_running moeplan-planner.service || fail "after removal: the planner still runs"
  inside test ! -e /usr/bin/moeplan || fail "after removal: /usr/bin/moeplan is still there"
  inside test -f /var/lib/moeplan/moeplan.db -a -f /etc/default/moeplan-planner ||
    fail "after removal: the database or the configuration is gone"
}

# It lists the files of the upper layer but for the records that dpkg, adduser, man-db, the loader and systemd keep.
left_behind() {
  (
    cd "$overlay/upper"
    find . -name '*moeplan*' ! -path './var/lib/dpkg/*' ! -path './var/cache/man/*'
    find . ! -type d ! -name '*moeplan*' -regextype posix-extended \
      ! -regex '\./var/(lib/dpkg|lib/systemd|log|cache)/.*' ! -regex '\./etc/(passwd|group|g?shadow|subuid|subgid)-?' \
      ! -regex '\./etc/(\.pwd\.lock|machine-id|mtab|ld\.so\.cache)'
  )
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
check_library
check_python
check_units
check_reinstallation
check_purge
printf 'debian: installed, ran, removed and purged %s\n' "${names[*]}"
