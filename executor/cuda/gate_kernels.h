// The gate (executor/kernels.h: Gate, AssignSlots, GateGradient), as kernels on a CUDA stream.
//
// Choices, weights and slots have the bits of the host kernels; sums of statistics may differ in the last ones. Pairs
// take slots first come first served: a block counts its own, the counts of blocks are summed up, and then each pair
// knows its place. With BATCH_PRIORITIZED they come in the order of their tokens' priority, and with EXPERT_CHOICE
// slots are places in the order of an expert's tokens (gate_order.h). Sums have one order, the same at every call. All
// pointers are device memory that must live until the stream has passed.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "executor/gate_scores.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::executor::cuda {

class GroupedGemm;

struct GateShape {
  RowShape rows;
  int experts = 1;
  int choices = 1;  // All experts with EXPERT_CHOICE.
  GateKind gate = GateKind::kTopK;
  Router router;

  MOEPLAN_HD bool draws() const { return gate == GateKind::kRandom || gate == GateKind::kHash; }
  MOEPLAN_HD bool chooses_largest() const { return !draws() && gate != GateKind::kExpertChoice; }
  // Whether tokens choose and their pairs come in the order of tokens.
  MOEPLAN_HD bool counts_in_order() const { return chooses_largest() && gate != GateKind::kBatchPrioritized; }
};

// kInvalidInput for more experts than a block has room for.
Status CheckGate(const GateShape& shape);

// The tensors of a router, on the card; null where it has none.
struct DeviceGate {
  const float* weight = nullptr;                            // [experts][columns]
  const float *bias = nullptr, *correction_bias = nullptr;  // [experts]
};

// What the gate keeps between its kernels.
struct GateScratch {
  float* logits = nullptr;      // [blocks · rows_per_block][experts]
  float* block_sums = nullptr;  // [experts + 2][thread blocks]: probabilities, logsumexp², entropy of the own block.
  int32_t* block_counts = nullptr;  // [blocks][experts][thread blocks]
  // What BATCH_PRIORITIZED and EXPERT_CHOICE put in order: a list of tokens for each block, or each expert of it.
  uint32_t* keys = nullptr;        // [lists][rows_per_block]
  int32_t* items = nullptr;        // [lists][rows_per_block]
  int32_t* item_counts = nullptr;  // [lists]

  static size_t Bytes(const GateShape& shape, const TokenRows& tokens);
  // How it lies at `data`, which begins at a multiple of 16 bytes.
  static GateScratch At(std::byte* data, const GateShape& shape, const TokenRows& tokens);
};

// Requires a shape that CheckGate accepts. GateLogits, then Route.
Status Gate(const GateShape& shape, const DeviceGate& gate, const GateArgs& args, const GateScratch& scratch,
            cudaStream_t stream);
// Fills scratch.logits, for all rows of `tokens`.
Status GateLogits(const GateShape& shape, const DeviceGate& gate, const TokenRows& tokens, const GateScratch& scratch,
                  cudaStream_t stream);
// All that follows from scratch.logits: choices, weights, slots and sums. `correction_bias` is [experts], or null where
// the router has none.
Status Route(const GateShape& shape, const float* correction_bias, const GateArgs& args, const GateScratch& scratch,
             cudaStream_t stream);

Status AssignSlots(const GateShape& shape, const AssignSlotsArgs& args, cudaStream_t stream);

// Of the router's losses, as FindSlopes of executor/host/gating.h has them.
struct RouterLosses {
  double aux_loss_coefficient = 0, z_loss_coefficient = 0;
};

// The memory that the kernels of GateGradient hand on to each other. With BF16 rows its products take floats in pieces
// (gate_gradient.cu).
struct GateGradientScratch {
  float* logits = nullptr;             // [valid rows][pieces][experts], then their gradients.
  float* slopes = nullptr;             // [experts]
  float* weight_gradients = nullptr;   // [tokens], where weights multiply what experts get.
  float* bias_parts = nullptr;         // [parts][experts] of the gradient of the gate's bias, where it has one.
  float* sums = nullptr;               // [tokens at once][columns] of the gradient of tokens.
  float* parts = nullptr;              // [parts][pieces][experts][columns] of the gradient of the gate's weights.
  std::byte* weight_pieces = nullptr;  // [kept pieces][experts][columns], with BF16 rows.

  static size_t Bytes(const GateShape& shape, const TokenRows& tokens);
  // How it lies at `data`, which begins at a multiple of 16 bytes.
  static GateGradientScratch At(std::byte* data, const GateShape& shape, const TokenRows& tokens);
};

// Its gradients have the accuracy of float sums, not the bits of the host. `args.pair_counts` is device memory.
Status GateGradient(const GateShape& shape, const WeightRule& weights, const RouterLosses& losses,
                    const DeviceGate& gate, const GateGradientArgs& args, const GateGradientScratch& scratch,
                    GroupedGemm& gemm, cudaStream_t stream);

}  // namespace moeplan::executor::cuda
