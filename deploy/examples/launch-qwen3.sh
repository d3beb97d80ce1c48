#!/usr/bin/env bash
# How somebody launches Qwen3-30B-A3B with Megatron Core on 8 nodes of 8 H100: what `moeplan advise --mine` and
# `moeplan check` read.
TP=1
PP=1
EP=8
MOE=(
  --num-experts 128
  --moe-router-topk 8
  --moe-ffn-hidden-size 768
  --moe-token-dispatcher-type alltoall
  --moe-grouped-gemm
)
torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --expert-model-parallel-size ${EP} \
  --micro-batch-size 1 --global-batch-size 512 --seq-length 4096 --max-position-embeddings 4096 \
  --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --group-query-attention \
  --num-query-groups 4 --kv-channels 128 "${MOE[@]}" \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --use-distributed-optimizer --overlap-grad-reduce --bf16
