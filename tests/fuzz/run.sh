#!/usr/bin/env bash
# Builds every fuzz target (preset fuzz) and runs each, as many at once as there are processors. What was covered is
# kept in build-fuzz/corpus and used the next time; an input that a target fails on is kept in build-fuzz/findings, and
# the exit status is then 1.
#
# Usage: tests/fuzz/run.sh [SECONDS for each, default 60] [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds="${1:-60}"
shift || true
if ! [[ "$seconds" =~ ^[1-9][0-9]*$ ]]; then
  printf 'fuzz: found %q seconds, expected a whole number above 0\n' "$seconds" >&2
  exit 2
fi

[[ -f build-fuzz/build.ninja ]] || cmake --preset fuzz > /dev/null
cmake --build --preset fuzz --target fuzzers --parallel "$(nproc)" > build-fuzz/build.log ||
  { cat build-fuzz/build.log >&2; exit 1; }

targets=("$@")
if ((${#targets[@]} == 0)); then
  for program in build-fuzz/bin/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi

# Examples that everybody can read are where each target starts from.
seeds() {
  local into="build-fuzz/corpus/$1"
  mkdir -p "$into" build-fuzz/findings
  shift
  for file in "$@"; do
    if [[ -f "$file" ]]; then cp "$file" "$into/seed-${file//\//-}"; fi
  done
}
shopt -s nullglob
seeds deepep_tests tests/fuzz/seeds/deepep_tests/*
seeds grid deploy/examples/grid*.json tests/fuzz/seeds/grid/*
seeds hf_config deploy/examples/*.config.json deploy/examples/gpt2-*.json tests/fuzz/seeds/hf_config/*
seeds hostfile tests/fuzz/seeds/hostfile/*
seeds http tests/fuzz/seeds/http/*
seeds kineto tests/fuzz/seeds/kineto/*
seeds nccl_tests tests/fuzz/seeds/nccl_tests/*
seeds plan_response tests/fuzz/seeds/plan_response/*
seeds profile deploy/examples/profile*.json tests/data/contract/profile*.json
seeds router_trace deploy/examples/router-trace.jsonl tests/fuzz/seeds/router_trace/*
seeds samples tests/fuzz/seeds/samples/*
seeds simulated_cluster deploy/examples/cluster.json deploy/examples/emulated*.json deploy/testbeds/*.json tests/data/contract/cluster*.json
seeds step_layout tests/fuzz/seeds/step_layout/*
seeds target_settings tests/fuzz/seeds/target_settings/*
seeds training_graph tests/fuzz/seeds/training_graph/*
seeds workload deploy/examples/workload*.json deploy/examples/mixtral-layer.json \
  deploy/examples/mixtral-across-nodes.json tests/data/contract/workload*.json

# The names of fields and of enums' values, which no random byte finds.
dictionary=build-fuzz/words.dict
{
  sed -nE 's/^ *(optional |repeated )?[A-Za-z0-9_.<>, ]+ ([a-z][a-z0-9_]*) = [0-9]+;.*/\2/p' proto/moeplan/v1/*.proto |
    sed -E 's/_([a-z0-9])/\U\1/g; s/.*/"\\"&\\":"/'
  sed -nE 's/^ *([A-Z][A-Z0-9_]*) = [0-9]+;.*/"\\"\1\\""/p' proto/moeplan/v1/*.proto
  sed -nE 's/^service ([A-Za-z]+) .*/"moeplan.v1.\1\/"/p; s/^ *rpc ([A-Za-z]+)\(.*/"\1"/p' proto/moeplan/v1/*.proto
  printf '"%s\\x0d\\x0a"\n' 'HTTP/1.1' 'Host: localhost' 'Content-Type: application/json' 'Authorization: Bearer admin' \
    'Transfer-Encoding: chunked' 'Content-Length: 2' 'Connection: close' 'Expect: 100-continue' 'X-Request-Id: a' ''
  printf '"%s"\n' 'top_indices' 'routing_map' 'tokens_per_expert' 'num_local_experts' 'num_experts_per_tok' \
    'slots=' 'max_slots=' '# Rank' 'Group' 'Collective test starting: ' '1e308' '-0.0' 'null' 'true' '2147483648' \
    '--expert-model-parallel-size ' '--moe-token-dispatcher-type flex' 'model.recompute_modules=' 'MODEL_ARGS:' '(t*4|)*' \
    '[config] ' 'num_tokens=' 'Best dispatch (BF16): SMs ' 'Best combine: SMs ' ' GB/s (RDMA)' \
    'traceEvents' 'cpu_op' 'cuda_runtime' 'kernel' 'user_annotation' 'correlation' 'External id' 'Input Dims' \
    'Sequence number' 'Collective name' 'Process Group Ranks' 'evaluate_function: ' 'AccumulateGrad' 'ProfilerStep#'
} | sort -u > "$dictionary"

one() {
  local name="$1" log="build-fuzz/findings/$1.log"
  if ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 "build-fuzz/bin/fuzz_$name" \
      -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -dict="$3" -print_final_stats=1 \
      -artifact_prefix="build-fuzz/findings/$name-" "build-fuzz/corpus/$name" > "$log" 2>&1; then
    printf '%-18s %s\n' "$name" "$(sed -nE 's/^stat::number_of_executed_units: *([0-9]+)/\1 inputs, nothing found/p' "$log")"
    rm -f "$log"
  else
    printf '%-18s FOUND something, see %s:\n' "$name" "$log"
    grep -aE -m 3 'ERROR|SUMMARY|check failed|runtime error|Test unit written' "$log" || tail -n 5 "$log"
    return 1
  fi
}
export -f one
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one "$@"' one {} "$seconds" "$dictionary" || exit 1
