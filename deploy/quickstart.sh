#!/usr/bin/env bash
# The whole loop on this machine, from a bare Debian 12 on: installs the packages, builds moeplan into build/, measures 4
# local ranks, asks the planner for a plan of one MoE layer, runs it beside the baseline and compares with what was
# predicted. Asks nothing; needs root or sudo only where packages are missing. May be run again at any time.
#
# Usage: deploy/quickstart.sh
# Writes: build/ and below it quickstart/ (database, plan, reports, traces, logs).
set -euo pipefail
export LC_ALL=C

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
PATH="$PATH:/usr/sbin:/sbin" # ip and tc, which not every user has on the path.

readonly moeplan=build/bin/moeplan
readonly out=build/quickstart
readonly db=$out/moeplan.db
readonly profile=quickstart
readonly workload=deploy/examples/workload.json
readonly emulated=deploy/examples/emulated.json
readonly budget=35s
readonly service_deadline_s=20

server= # Process of the planner service while it runs.

# ---- Saying what happens ---------------------------------------------------------------------------------------------

step() { printf '\n==> %s\n' "$*"; }
say() { printf '    %s\n' "$*"; }
fail() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 1
}

# ---- Reading JSON ----------------------------------------------------------------------------------------------------

# Every scalar of a JSON file as "path<TAB>value" (candidates[0].schedule, predictedTimeS), whatever its line breaks. Not a
# validator: moeplan wrote the file.
json_scalars() {
  grep -aoE '"([^"\\]|\\.)*"|[][{}:,]|[^][{}:,"[:space:]]+' "$1" | awk '
    function path(   i, text) {
      for (i = 1; i <= depth; ++i) {
        if (kind[i] == "[") text = text "[" at[i] "]"
        else text = text (text == "" ? "" : ".") key[i]
      }
      return text
    }
    $0 == "{" || $0 == "[" { kind[++depth] = $0; at[depth] = 0; is_key = $0 == "{"; next }
    $0 == "}" || $0 == "]" { --depth; is_key = 0; next }
    $0 == ":" { is_key = 0; next }
    $0 == "," { ++at[depth]; is_key = kind[depth] == "{"; next }
    { gsub(/^"|"$/, "") }
    is_key { key[depth] = $0; next }
    { print path() "\t" $0 }'
}

# json_value FILE PATH: that scalar, empty when it is not there.
json_value() { json_scalars "$1" | awk -F '\t' -v path="$2" '$1 == path { print $2 }'; }

# ---- Packages and build ----------------------------------------------------------------------------------------------

install_packages() {
  step "Packages"
  deploy/packages.sh --without-deploy-tests || fail "the packages of deploy/packages.txt could not be installed"
  say "all of deploy/packages.txt is installed, but for what the tests of deploy/ want"
}

# One compiler for each core, and each with two gigabytes of memory.
build_jobs() {
  awk -v cores="$(nproc)" '
    /^MemAvailable:/ { room = int($2 / 2097152) }
    END { jobs = room < cores ? room : cores; print jobs < 1 ? 1 : jobs }' /proc/meminfo
}

# Reads Ninja's lines, keeps them in the log and shows how far it is.
follow_build() {
  local line shown=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >> "$1"
    if [[ -t 1 && $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      printf '\r    %s of %s build steps' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
      shown=1
    fi
  done
  ((shown == 0)) || printf '\n'
}

build() {
  step "Build"
  local log=$out/build.log
  cmake --preset release > "$log" 2>&1 || {
    tail -n 15 "$log" >&2
    fail "cmake could not configure build/ (whole log: $log)"
  }
  cmake --build --preset release --target moeplan --parallel "$(build_jobs)" 2>&1 | follow_build "$log" || {
    grep -m 5 -E 'error|Error|Killed' "$log" >&2 || tail -n 15 "$log" >&2
    fail "the build failed (whole log: $log)"
  }
  say "$moeplan is built (log: $log)"
}

# ---- Ranks -----------------------------------------------------------------------------------------------------------

# What emulated nodes need, tried in a namespace that is gone when the test ends.
namespaces_work() {
  "$@" unshare --net sh -c '
    ip link add name bridge0 type bridge &&
    ip link add name veth0 type veth peer name veth1 &&
    tc qdisc add dev veth0 root tbf rate 1mbit burst 8kb limit 64kb' 2>&1
}

# Sets cluster, the CLUSTER arguments, and as, the command in front of moeplan where ranks start.
choose_cluster() {
  step "Ranks"
  local why
  as=()
  cluster=(--emulated "$emulated")
  if why="$(namespaces_work)"; then
    say "4 ranks on two emulated nodes of two: this machine lets us make network namespaces"
  elif ((EUID != 0)) && namespaces_work unshare --user --map-root-user > /dev/null; then
    as=(unshare --user --map-root-user)
    say "4 ranks on two emulated nodes of two: this machine lets any user make network namespaces"
  else
    cluster=(--local 4)
    say "4 ranks on one node: this machine does not let us make network namespaces (${why//$'\n'/; })"
  fi
}

# ---- Main job --------------------------------------------------------------------------------------------------------

calibrate() {
  step "Calibration, at most $budget"
  printf '{"workloads": [%s]}\n' "$(cat "$workload")" > $out/grid.json
  "${as[@]}" "$moeplan" calibrate "${cluster[@]}" --db "$db" --profile-name "$profile" --layouts $out/grid.json \
    --budget "$budget" --json > $out/profile.json || fail "calibration ended with exit status $? (its message is above)"
  say "profile $profile, version $(json_value $out/profile.json version), is in $db"
}

answers() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# A pair of ports where nothing answers: 7070 and 7080 if possible.
choose_ports() {
  local port
  for port in {7070..7169}; do
    answers "$port" || answers "$((port + 10))" || {
      grpc=127.0.0.1:$port
      http=127.0.0.1:$((port + 10))
      return
    }
  done
  fail "no free pair of ports for the planner service between 7070 and 7179"
}

stop_service() {
  [[ -n "$server" ]] || return 0
  kill -TERM "$server" 2> /dev/null || true
  local deadline=$((SECONDS + 5))
  while kill -0 "$server" 2> /dev/null; do
    ((SECONDS < deadline)) || kill -KILL "$server" 2> /dev/null || true
    sleep 0.05
  done
  server=
}

start_service() {
  step "Planner service"
  local log=$out/serve.log deadline=$((SECONDS + service_deadline_s))
  choose_ports
  # Should this script be killed, the kernel ends the service.
  setpriv --pdeathsig TERM "$moeplan" serve --db "$db" --grpc "$grpc" --http "$http" > "$log" 2>&1 &
  server=$!
  until answers "${grpc#*:}"; do
    kill -0 "$server" 2> /dev/null || fail "the planner service ended: $(tail -n 1 "$log") (log: $log)"
    ((SECONDS < deadline)) || fail "the planner service does not answer on $grpc after $service_deadline_s s (log: $log)"
    sleep 0.05
  done
  say "listening on $grpc (gRPC) and $http (HTTP) until this script ends (log: $log)"
}

ask_for_plan() {
  step "Plan"
  "$moeplan" plan --planner "$grpc" --profile-name "$profile" --workload "$workload" --json > $out/plan.json ||
    fail "the planner at $grpc gave no plan, exit status $? (its message is above)"
  chosen="$(json_value $out/plan.json best.schedule)"
  [[ -n "$chosen" ]] || fail "the planner's answer has no best.schedule (the answer: $out/plan.json)"
  say "asked over gRPC for $workload, answered $chosen: $out/plan.json"
  json_value $out/plan.json explanation | sed 's/\\"/"/g' | fold -s -w 112 | sed 's/^/    /'
}

# The baselines among the candidates, each once, best first.
baselines() {
  json_scalars $out/plan.json | awk -F '\t' '
    $1 ~ /^candidates\[[0-9]+\]\.schedule$/ && $2 ~ /^BASELINE(_TP)?$/ && !seen[$2]++ { print $2 }'
}

# run_schedule NAME [ARGUMENTS...]: runs it on the ranks, into run-NAME.json and trace-NAME.json.
run_schedule() {
  local name=$1
  shift
  "${as[@]}" "$moeplan" run --plan $out/plan.json "${cluster[@]}" "$@" --trace "$out/trace-$name.json" --json \
    > "$out/run-$name.json" || fail "running $name ended with exit status $? (its message is above)"
  say "$name ran: $out/run-$name.json"
}

run_schedules() {
  step "Runs"
  rm -f $out/run-*.json $out/trace-*.json
  local name
  schedules=()
  for name in $(baselines); do
    [[ "$name" != "$chosen" ]] || continue
    run_schedule "$name" --schedule "$name"
    schedules+=("$name")
  done
  run_schedule "$chosen"
  schedules+=("$chosen")
}

print_table() {
  step "Predicted beside measured"
  local name
  for name in "${schedules[@]}"; do
    json_scalars "$out/run-$name.json" |
      awk -F '\t' -v name="$name" '
        $1 ~ /^(predictedTimeS|measuredTimeS|maxRelativeError)$/ { value[$1] = $2 }
        END { print name, value["predictedTimeS"], value["measuredTimeS"], value["maxRelativeError"] }'
  done | awk -v chosen="$chosen" '
    { name[NR] = $1; predicted[NR] = $2; measured[NR] = $3; if ($4 > difference) difference = $4 }
    $1 ~ /^BASELINE/ && (baseline == 0 || $3 < baseline) { baseline = $3 }
    END {
      printf "    %-22s %12s %12s %8s %22s\n", "schedule", "predicted", "measured", "error", "speedup over baseline"
      for (i = 1; i <= NR; ++i) {
        error = predicted[i] / measured[i] - 1
        speedup = baseline > 0 ? sprintf("%.2fx", baseline / measured[i]) : "-"
        printf "    %-22s %9.2f ms %9.2f ms %+7.1f%% %22s\n", name[i] (name[i] == chosen ? " (chosen)" : ""),
               predicted[i] * 1e3, measured[i] * 1e3, error * 100, speedup
      }
      printf "\n    error: predicted / measured - 1; speedup over the faster baseline, as measured;\n"
      printf "    outputs differ from the reference layer by at most %.1e of its largest value\n", difference
    }'
}

print_what_is_left() {
  local with="${as[*]}${as:+ }$moeplan"
  step "Done in $SECONDS s. In $root:"
  say "database  $db"
  say "trace     $out/trace-$chosen.json, predicted beside measured; open it in https://ui.perfetto.dev"
  printf '\n    Next:\n'
  say "$moeplan profile show --db $db"
  say "$moeplan plan --db $db --workload $workload"
  say "$with validate ${cluster[*]} --workloads deploy/examples/grid.json"
  say "$moeplan serve --db $db --grpc 127.0.0.1:7070 --http 127.0.0.1:7080    # dashboard: http://127.0.0.1:7080/"
  say "tests/run.sh"
}

trap stop_service EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p $out
install_packages
build
choose_cluster
calibrate
start_service
ask_for_plan
run_schedules
print_table
print_what_is_left
