#!/usr/bin/env bash
# The samples of a card alone, fitted, price a layer on one GPU. Usage: samples_make_a_profile.sh GPU_SAMPLES MOEPLAN
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$1" --small > "$folder/samples.json"
"$2" fit --samples "$folder/samples.json" --json > "$folder/profile.json"
grep -q EXPERT_WEIGHT_GRADIENT "$folder/profile.json"
cat > "$folder/workload.json" << 'EOF'
{"name": "one", "layer": {"batch": 1, "sequenceLength": 16, "modelDim": 16, "hiddenDim": 16, "experts": 8, "topK": 2,
 "capacityFactor": 1, "expertMatrices": 3}, "layout": {"expertParallel": 1}, "minChunkBytes": 1}
EOF
"$2" plan --profile "$folder/profile.json" --workload "$folder/workload.json" --json > "$folder/plan.json"
grep -q '"schedule": *"PIPELINE"' "$folder/plan.json"
