#!/usr/bin/env bash
# What a visitor sees of moeplan in ten minutes, without a GPU: one file that answers for a job of their own, and what
# its answers rest on. Every step is a command that is shown, and its output. Fails where a step does not do what it is
# there to show.
#
# Usage: ten_minutes.sh [SOURCE_DIR [MOEPLAN]]
#   SOURCE_DIR   default: the folder above this script's
#   MOEPLAN      the program; default: the one file, which deploy/release.sh makes where it is not there
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'ten-minutes: %s\n' "$*" >&2
  exit 1
}

source_dir="$(realpath "${1:-"$(dirname "${BASH_SOURCE[0]}")/../.."}")"
program="${2:-$source_dir/build-one-file/moeplan}"
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

title "How far off were such predictions? Steps that others measured, of jobs with experts on H100 (docs/truth.md)"
sed -n '/^set  *rows/p; /^published-moe/p; /^simumax-.*-moe .* [0-9.]* .*1.00/p; /^errors in %/p' docs/truth.md

title "Which dispatcher, and when does it flip? Over micro-batches, then over skew"
layout='{"expertParallel": 16, "recompute": "SELECTIVE", "recomputeModules": ["MOE_ACT"]}'
what_if=(moeplan what-if --hardware h100-sxm --model qwen3-30b-a3b --gpus 64 --global-batch 512
  --sequence-length 4096 --layout "$layout")
show "${what_if[@]}" --sweep microBatch=1,2,4,8
show "${what_if[@]}" --sweep expertImbalance=1,1.5,2,3

title "Why does overlap gain nothing? Eight experts inside a node"
show moeplan step --model mixtral-8x7b --hardware h200-sxm:8x8 --gpus 64 --global-batch 512 --sequence-length 4096 \
  --layout '{"expertParallel": 8}' --overlap > "$scratch/overlap"
sed -n '/^Exchanges of experts/,$p' "$scratch/overlap"
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

title "The step, for Perfetto"
show moeplan step "${job[@]}" --gpus 64 --layout layout.json --trace step.trace.json > step
head -n 1 step
python3 -c 'import json; print(len(json.load(open("step.trace.json"))["traceEvents"]), "slices")'
