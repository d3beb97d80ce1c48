#!/usr/bin/env bash
# deploy/slurm/moeplan.sbatch is clean bash and, where Slurm's daemons are, runs: a cluster of this machine alone, with its own
# munged, slurmctld and slurmd, takes the job, two ranks of which are calibrated, and the job's command is given a plan.
#
# Usage: slurm_job.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
export LC_ALL=C
source_dir="$1" build_dir="$2"
script="$source_dir/deploy/slurm/moeplan.sbatch"

fail() {
  printf 'slurm: %s\n' "$*" >&2
  exit 1
}
skip() {
  printf 'slurm: SKIPPED: %s\n' "$*"
  exit 77
}

bash -n "$script" || fail "bash cannot read $script (above)"
if command -v shellcheck > /dev/null; then
  shellcheck "$script" || fail "shellcheck has complaints about $script (above)"
else
  printf 'slurm: not asked: shellcheck is not here (Debian: shellcheck)\n'
fi

# Those of other users are in sbin.
PATH="$build_dir/bin:$PATH:/usr/sbin"
for program in munged slurmctld slurmd sbatch srun openssl; do
  command -v "$program" > /dev/null ||
    skip "the script is clean; not run: $program is not here (Debian: munge, slurmctld, slurmd, slurm-client, openssl)"
done
((EUID == 0)) || skip "the script is clean; not run: slurmd needs root"
for command in agent token; do
  moeplan $command --help > /dev/null 2>&1 || skip "the script is clean; not run: there is no moeplan $command yet"
  ! moeplan --help | grep -q "^ *$command .*(not there yet)" ||
    skip "the script is clean; not run: moeplan $command is not there yet"
done

# In namespaces of its own, with which its daemons end.
if [[ "${3:-}" != --inside ]]; then
  unshare --mount --net --pid --fork --kill-child true 2> /dev/null || skip "the script is clean; this machine makes no namespaces"
  exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$source_dir" "$build_dir" --inside
fi

scratch="$(mktemp -d)"
trap 'kill $(jobs -p) 2> /dev/null || true; wait || true; rm -rf "$scratch"' EXIT
# Slurm asks for addresses of more than loopback.
address=10.77.0.1
ip link set lo up
ip link add name slurm0 type bridge
ip address add $address/24 dev slurm0
ip link set slurm0 up
export SLURM_CONF="$scratch/slurm.conf"
chmod 755 "$scratch"

show_logs() { tail -n 20 "$scratch"/*.log "$scratch"/job.out "$scratch"/state/job-*/*.log >&2 2> /dev/null || true; }
# await WHAT COMMAND...: until it succeeds, at most 60 s.
await() {
  local what="$1" deadline=$((SECONDS + 60))
  shift
  until "$@" > /dev/null 2>&1; do
    ((SECONDS < deadline)) || {
      show_logs
      fail "$what: waited 60 s (logs above)"
    }
    sleep 0.1
  done
}

start_munge() {
  dd if=/dev/urandom of="$scratch/munge.key" bs=1024 count=1 status=none
  chmod 400 "$scratch/munge.key"
  munged --foreground --force --key-file="$scratch/munge.key" --socket="$scratch/munge.socket" \
    --pid-file="$scratch/munge.pid" --log-file="$scratch/munge.log" --seed-file="$scratch/munge.seed" 2> "$scratch/munged.log" &
  await "munged's socket" test -S "$scratch/munge.socket"
}

start_slurm() {
  local host
  host="$(hostname -s)"
  cat > "$SLURM_CONF" << CONF
ClusterName=test
SlurmctldHost=$host($address)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
SlurmdSpoolDir=$scratch/slurmd
StateSaveLocation=$scratch/slurmctld
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.log
NodeName=$host NodeAddr=$address CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
  mkdir "$scratch/slurmd" "$scratch/slurmctld"
  slurmctld -D -f "$SLURM_CONF" > /dev/null 2>&1 &
  slurmd -D -f "$SLURM_CONF" > /dev/null 2>&1 &
  await "an idle node" sh -c 'sinfo --noheader --format=%t | grep -qx idle'
}

run_job() {
  local examples="$source_dir/deploy/examples"
  cat > "$scratch/train.sh" << 'TRAIN'
#!/bin/sh
test -s "$1" && echo "rank $SLURM_PROCID of $SLURM_NTASKS has its plan"
TRAIN
  chmod 755 "$scratch/train.sh"
  # The workload of the quick start, on two ranks.
  sed -e 's/"tensorParallel": 2/"tensorParallel": 1/' -e 's/"expertShardingParallel": 2/"expertShardingParallel": 1/' \
    "$examples/workload.json" > "$scratch/workload.json"
  MOEPLAN_STATE="$scratch/state" MOEPLAN_BACKEND=host MOEPLAN_BUDGET=3s timeout 150 \
    sbatch --wait --nodes=1 --ntasks-per-node=2 --gpus-per-node=0 --output="$scratch/job.out" --overcommit \
    "$script" "$scratch/workload.json" "$scratch/train.sh" > "$scratch/sbatch.log" 2>&1 || {
    show_logs
    fail "the job failed (logs above)"
  }
  [[ "$(grep -c '^rank [01] of 2 has its plan$' "$scratch/job.out")" == 2 ]] || {
    show_logs
    fail "expected that both ranks were given the plan"
  }
  grep -q '"schedule"' "$scratch"/state/job-*/plan.json || fail "expected a schedule in the job's plan.json"
}

start_munge
start_slurm
run_job
printf 'slurm: %s\n' "$(grep 'the plan is' "$scratch/job.out")"
