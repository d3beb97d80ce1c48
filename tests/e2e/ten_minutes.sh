#!/usr/bin/env bash
# What a visitor sees of moeplan in ten minutes, without a GPU: one file that answers for a job of their own, and what
# its answers rest on. Every step is a command that is shown, and its output. Fails where a step does not do what it is
# there to show.
#
# Usage: ten_minutes.sh [SOURCE_DIR [MOEPLAN [PYTHON]]]
#   SOURCE_DIR   default: the folder above this script's
#   MOEPLAN      the program; default: the one file, which deploy/release.sh makes where it is not there
#   PYTHON       the folder with the Python package (target moeplan_python); default: the one file's build
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'ten-minutes: %s\n' "$*" >&2
  exit 1
}

source_dir="$(realpath "${1:-"$(dirname "${BASH_SOURCE[0]}")/../.."}")"
program="${2:-$source_dir/build-one-file/moeplan}"
python="$(realpath -m "${3:-$source_dir/build-one-file/python}")"
scratch="$(mktemp -d)"
server=
clean_up() {
  [[ -z "$server" ]] || kill "$server" 2> /dev/null || true
  wait
  rm -rf "$scratch"
}
trap clean_up EXIT

title() { printf '\n==> %s\n' "$*"; }
# Shows a command as a visitor would type it, whatever becomes of its output, and runs it.
exec 3>&1
show() {
  local word line='$'
  for word in "$@"; do
    [[ "$word" != *[[:space:]\"]* ]] || word="'$word'"
    if ((${#line} + ${#word} > 76)); then
      printf '%s \\\n' "$line" >&3
      line='   '
    fi
    line+=" $word"
  done
  printf '%s\n' "$line" >&3
  "$@"
}

[[ -x "$program" ]] || "$source_dir/deploy/release.sh" "$program"
[[ -d "$python/moeplan" ]] || cmake --build "$(dirname "$python")" --target moeplan_python > /dev/null
mkdir -p "$scratch/bin"
ln -s "$(realpath "$program")" "$scratch/bin/moeplan"
export PATH="$scratch/bin:$PATH"
cd "$source_dir"
readonly job=(--model qwen3-30b-a3b --hardware h100-sxm:8x8 --global-batch 512 --sequence-length 4096)
readonly script=deploy/examples/launch-qwen3.sh logs=deploy/examples/logs

title "One file"
printf '%s: %d MB, needs %s\n' "$(basename "$(realpath "$program")")" "$(($(stat -Lc %s "$program") / 1000000))" \
  "$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | paste -sd ' ')"

title "What should I set, and what will it gain over my launch script, whose step takes 5.2 s?"
show moeplan advise "${job[@]}" --mine "$script" --measured-step 5.2 | tee "$scratch/advice"
grep -q '^yours ' "$scratch/advice" || fail "advise did not compare with the script"
grep -q '^memory ' "$scratch/advice" || fail "advise said nothing of memory"

title "How far off were such predictions? Steps of models with experts that others measured (docs/truth.md)"
sed -n '/^set  *rows/p; /^published-moe/p; /^simumax-.*-moe .* [0-9.]* .*1.00/p; /^errors in %/p' docs/truth.md

title "Which dispatcher, and when does it flip? Over micro-batches, then over skew"
layout='{"expertParallel": 16, "recompute": "FULL"}'
what_if=(moeplan what-if --hardware h100-sxm --model qwen3-30b-a3b --gpus 64 --global-batch 512
  --sequence-length 4096 --layout "$layout")
show "${what_if[@]}" --sweep microBatch=1,2,4,8
show "${what_if[@]}" --sweep expertImbalance=1,1.5,2,3

title "Why does overlap gain nothing? A step of one micro-batch"
show moeplan step --model qwen3-30b-a3b --hardware h200-sxm:8x8 --gpus 64 --global-batch 64 --sequence-length 4096 \
  --layout '{"expertParallel": 16, "schedule": "BASELINE"}' --overlap > "$scratch/overlap"
sed -n '/^Exchanges of experts/,$p' "$scratch/overlap"
grep -q 'gain nothing' "$scratch/overlap" || fail "overlap gains something: $(cat "$scratch/overlap")"
grep -q '^compute ' "$scratch/overlap" || fail "step --overlap drew no timeline: $(cat "$scratch/overlap")"

title "My own network: logs of nccl-tests and of DeepEP's tests"
cp "$logs"/*.log "$scratch"
cd "$scratch"
show moeplan import nccl-tests alltoall-h100-1x8.log alltoall-h100-8x8.log --json > nccl.json
show moeplan import deepep deepep-h100-2x8.log --group-size 16 --ranks-per-node 8 --nodes 8 --transport NVSHMEM --json \
  > deepep.json
show moeplan fit --samples nccl.json --samples deepep.json --json > profile.json

title "What did they change? For GPT-OSS-20B, before and after"
readonly other=(--model gpt-oss-20b --hardware h100-sxm:8x8 --global-batch 512 --sequence-length 4096)
show moeplan advise "${other[@]}" --json > before.json
show moeplan advise "${other[@]}" --profile profile.json --against before.json > after
sed -n '/^take/,/^memory/p; /^changed/,/^$/p' after | grep -v '^memory'
grep -q '^changed ' after || fail "advise --against named no cost that changed: $(cat after)"
grep -q '^decided   dispatcher' after || fail "advise --against named no decision that moved: $(cat after)"

title "Does Megatron Core take these flags? And with a pipeline that its overlap needs virtual stages for?"
moeplan advise "${job[@]}" --json > "$scratch/answer.json"
# Of the answer: the settings as a script has them, and the layout.
python3 - "$scratch/answer.json" "$scratch/flags.sh" "$scratch/layout.json" << 'PYTHON'
import json, shlex, sys
answer = json.load(open(sys.argv[1]))
open(sys.argv[2], "w").write(shlex.join(answer["export"]["arguments"]) + "\n")
json.dump(answer["layout"], open(sys.argv[3], "w"))
PYTHON
cd "$scratch"
show moeplan check --to megatron --gpus 64 --model qwen3-30b-a3b --arguments flags.sh | head -n 1
sed 's/--pipeline-model-parallel-size 1/--pipeline-model-parallel-size 2/' flags.sh > broken.sh
status=0
show moeplan check --to megatron --gpus 64 --model qwen3-30b-a3b --arguments broken.sh > check || status=$?
((status == 1)) || fail "check took a broken rule: exit $status"
grep -v '^{' check | head -n 6

title "My job runs: what can it change without a restart, and was that predicted? (A stand-in reports its steps)"
moeplan serve --db "$scratch/moeplan.db" --grpc 127.0.0.1:0 --http 127.0.0.1:0 > "$scratch/serve" 2>&1 &
server=$!
for ((i = 0; i < 200; ++i)); do
  ! grep -q '^serving' "$scratch/serve" || break
  kill -0 "$server" 2> /dev/null || fail "serve ended: $(cat "$scratch/serve")"
  sleep 0.1
done
cat > job.py << 'PYTHON'
import sys, time, moeplan

def steps(seconds, watch):
    """Reports steps that take so long until the planner has something to say of them."""
    while True:
        for percent in (0, 1, -1, 2, 0, -2):
            change = watch.step(seconds * (1 + percent / 100))
            if change is not None:
                return change
            time.sleep(0.05)

job = {"model_name": "qwen3-30b-a3b", "hardware": "h100-sxm:8x8", "global_batch": 512, "sequence_length": 4096}
planner = moeplan.Planner(sys.argv[1], deadline_s=60)
with moeplan.StepWatch(planner, job=job, mine=open(sys.argv[2]).read(), every=6, warmup=1) as watch:
    change = steps(5.2, watch)
    print(f"steps of {change.measured_s:.2f} s; now: {change.live}")
    print(f"which makes them {change.gain:.2f} times as fast (90 %: {change.gain_low:.2f} to {change.gain_high:.2f})")
    print(f"a restart with {change.next_start['text']} would gain {change.next_start['gain']:.2f}")
    watch.applied(change)
    steps(4.3, watch)
    for predicted_s, measured_s in watch.history:
        print(f"predicted {predicted_s:.2f} s for what was set, measured {measured_s:.2f} s")
PYTHON
address="$(sed -n 's/.*gRPC on \([^,]*\),.*/\1/p' "$scratch/serve")"
interpreter=
for one in python3 /usr/bin/python3; do
  ! "$one" -c 'import grpc, google.protobuf' 2> /dev/null || { interpreter="$one" && break; }
done
if [[ -n "$interpreter" ]]; then
  cp "$source_dir/$script" train.sh
  export PYTHONPATH="$python"
  show "$interpreter" job.py "$address" train.sh | tee job.out
  grep -q '^predicted .* measured ' job.out || fail "the callback had no prediction beside the steps"
else
  printf 'left out: no Python here has grpcio and protobuf (Debian: python3-grpcio)\n'
fi

title "The step, for Perfetto"
show moeplan step "${job[@]}" --gpus 64 --layout layout.json --trace step.trace.json > step
head -n 1 step
python3 -c 'import json; print(len(json.load(open("step.trace.json"))["traceEvents"]), "slices")'
