// The gate (executor/kernels.h: Gate, AssignSlots, GateGradient), as kernels on a CUDA stream, for gates whose tokens
// choose the experts of their largest logits one after the other: TOP_K and SWITCH. Gradients are for every gate.
//
// Logits and choices have the bits of the host kernels, slots follow from them; probabilities may differ in the last
// bits, as the two machines' exponential functions do. Pairs take slots first come first served: a block counts its
// own, the counts of blocks are summed up, and then each pair knows its place. Sums have one order, the same at every
// call. All pointers are device memory that must live until the stream has passed.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "executor/gate_scores.h"
#include "models/status.h"

namespace moeplan::cuda {

struct GateShape {
  RowShape rows;
  int experts = 1;
  int choices = 1;
};

// kUnimplemented for gates that have no kernel, kInvalidInput for more experts than a block has room for.
Status CheckGate(GateKind gate, const GateShape& shape);

// What the gate keeps between its kernels.
struct GateScratch {
  float* logits = nullptr;       // [blocks · rows_per_block][experts]
  double* block_sums = nullptr;  // [experts + 2][thread blocks]: probabilities, logsumexp², entropy of the own block.
  int32_t* block_counts = nullptr;  // [blocks][experts][thread blocks]

  static size_t Bytes(const GateShape& shape, const TokenRows& tokens);
  // How it lies at `data`, which begins at a multiple of 16 bytes.
  static GateScratch At(std::byte* data, const GateShape& shape, const TokenRows& tokens);
};

// `gate_weight` is [experts][columns]. Requires a gate and shape that CheckGate accepts. GateLogits, then Route.
Status Gate(const GateShape& shape, const float* gate_weight, const GateArgs& args, const GateScratch& scratch,
            cudaStream_t stream);
// Fills scratch.logits, for all rows of `tokens`.
Status GateLogits(const GateShape& shape, const float* gate_weight, const TokenRows& tokens, const GateScratch& scratch,
                  cudaStream_t stream);
// All that follows from scratch.logits: choices, weights, slots and sums.
Status Route(const GateShape& shape, const GateArgs& args, const GateScratch& scratch, cudaStream_t stream);

Status AssignSlots(const GateShape& shape, const AssignSlotsArgs& args, cudaStream_t stream);

// Of the router's losses, as FindSlopes of executor/host/gating.h has them.
struct RouterLosses {
  double aux_loss_coefficient = 0, z_loss_coefficient = 0;
};

struct GateGradientScratch {
  float* logit_gradients = nullptr;  // [valid rows][experts]
  float* slopes = nullptr;           // [experts]
  float* parts = nullptr;            // [parts][experts][columns] of the gradient of the gate's weights.

  static size_t Bytes(const GateShape& shape, const TokenRows& tokens);
  static GateGradientScratch At(std::byte* data, const GateShape& shape, const TokenRows& tokens);
};

// `args.pair_counts` is device memory.
Status GateGradient(const GateShape& shape, WeightKind weights, const RouterLosses& losses, const float* gate_weight,
                    const GateGradientArgs& args, const GateGradientScratch& scratch, cudaStream_t stream);

}  // namespace moeplan::cuda
