// The question "how should this model lie on so many GPUs" and its answer. Values only; the answer is mirrored by
// moeplan.v1.LayoutResult (contract).
#pragma once

#include <string>
#include <vector>

#include "models/cost/operation.h"
#include "models/model/model_config.h"
#include "models/schedule/knobs.h"
#include "models/step/recompute.h"
#include "models/workload/workload.h"

namespace moeplan {

// Whether the backward pass of attention finds the scores stored, or computes them again block by block
// (FlashAttention).
enum class AttentionKernel { kFlash, kStored };

// How attention sees the tokens of other contexts: keys and values go round, or each context gets whole sequences of
// some heads (DeepSpeed-Ulysses).
enum class ContextExchange { kKeysValues, kAllToAll };

// What linear layers but the last, and experts, are computed in.
enum class Precision { kBf16, kFp8, kMxfp8, kNvfp4 };

struct LayoutRequest {
  ModelConfig model;
  int gpus = 0;             // As many as a node has or a divisor of that, or whole nodes.
  int global_batch = 0;     // Samples of a step.
  int sequence_length = 0;  // Tokens of a sample.
  int zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  RecomputeModules recompute_modules;  // With selective recomputation; empty: kCoreAttention.
  int gradient_bytes = 4;              // Of a gradient that is summed: 4, FP32, or 2, BF16.
  AttentionKernel attention = AttentionKernel::kFlash;
  ContextExchange context_exchange = ContextExchange::kKeysValues;
  int recompute_layers = 0;  // With full recomputation: of each virtual stage, the first so many; 0: all.
  // With full recomputation of all: so many layers of a virtual stage in a row keep one input and are computed again
  // together.
  int recompute_chunk = 1;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  Transport transport = Transport::kNccl;
  // Experts' exchanges of a micro-batch run beside the compute of another, which goes the other way; and whether
  // weight gradients wait for that (models/step/two_batches.h).
  bool overlaps_experts = false, delays_weight_gradients = false;
  bool overlaps_tensor = false;         // Exchanges over TP run beside the products around them, a piece a rank.
  int next_tokens = 0;                  // Layers that predict further tokens (MTP), behind the model's.
  bool overlaps_gradients = true;       // Gradients are summed while the last backward pass runs, or after it.
  bool overlaps_shared_experts = true;  // Shared experts run beside the exchange of the routed ones, or after them.
  bool sequence_parallel = true;
  // MoE layers run whole experts by the one schedule that training frameworks have, with any dispatcher, and a ranking
  // lays contexts along the experts' ranks alone, as frameworks do; else by the best of all.
  bool as_frameworks = false;
  double capacity_factor = 1;
  bool dropless = false;  // The factor is of rows that the busiest of the experts' ranks has; see DropsNothing.
  int bytes_per_element = 2;
  // Ranks that the network can join at full rate, which horizontal context parallelism needs; 0: all of them.
  int max_network_scale = 0;
  Precision precision = Precision::kBf16;
  int virtual_stages = 1;   // Of each rank of a pipeline, interleaved (Megatron's virtual pipeline).
  std::vector<int> stages;  // Layers of each virtual stage, in pipeline order; empty: as even as possible.
  int top = 10;             // Layouts to answer; 0: all that fit.
};

// Whether every pair of a token and an expert is sent. A factor of 1 is how dropless layers are asked for without more.
inline bool DropsNothing(const LayoutRequest& request) { return request.dropless || request.capacity_factor == 1; }

// Whether the part is computed again because recomputation selects it.
inline bool SelectsAgain(const LayoutRequest& request, RecomputeModule module) {
  if (request.recompute != Recompute::kSelective) return false;
  const RecomputeModules& modules = request.recompute_modules;
  if (modules.empty()) return module == RecomputeModule::kCoreAttention;
  // Shared experts and the activation are parts of the layer that kMoe computes again.
  const bool of_experts = module == RecomputeModule::kSharedExperts || module == RecomputeModule::kMoeAct;
  if (of_experts && modules.Has(RecomputeModule::kMoe)) return module == RecomputeModule::kSharedExperts;
  return modules.Has(module);
}

// Device memory of one rank, by what takes it (planner/layout/rank_memory.h).
struct RankMemory {
  double weight_bytes = 0;  // With ZeRO-3 also what other replicas hold of the layer that runs.
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  double kept_bytes = 0;     // Activations kept for the backward pass, of all micro-batches on their way.
  double running_bytes = 0;  // Of the layer that runs, beyond what it keeps and beyond logit_bytes.
  double logit_bytes = 0;    // While the loss is computed; on the last stage alone.
  double other_bytes = 0;    // What autograd is handed instead of the gradients of weights.

  double state_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
  double total_bytes() const { return state_bytes() + kept_bytes + running_bytes + logit_bytes + other_bytes; }
  friend bool operator==(const RankMemory&, const RankMemory&) = default;
};

struct RankedLayout {
  Layout layout;        // Every degree.
  int micro_batch = 1;  // Samples that a tensor-parallel group takes at once.
  double step_time_s = 0;
  double tokens_per_s = 0;
  double mfu = 0;  // 0: the profile does not know the peak.
  RankMemory memory;
  int network_scale = 1;
  bool horizontal_contexts = false;  // CP across EP rather than along it.
  double pipeline_bubble = 0;        // Share of the pipeline's time in which the slowest stage waits.
  double gradient_s = 0;             // Of the step: gradients and weights exchanged with nothing beside them.
  double moe_layer_s = 0;            // One MoE layer on one micro-batch, forward and backward.
  Knobs moe;                         // Its schedule; nothing where no layer has experts.
  bool lancet = false;        // Lancet's passes plan the graphs of the stages, whose MoE layers run as `moe` says.
  bool extrapolated = false;  // Some group was not measured.
  // Entries of the profile that its times are priced from: those of the MoE layer, the dearest first, then the others.
  std::vector<CostKey> priced_from;

  friend bool operator==(const RankedLayout&, const RankedLayout&) = default;
};

struct LayoutAnswer {
  std::vector<RankedLayout> layouts;  // Best first. Empty: none fits.
  int enumerated = 0;                 // Layouts × micro-batches that the model's and the cluster's numbers allow.
  int fitting = 0;                    // Of them, those whose weights, states and kept activations fit.
  int priced = 0;                     // Of them, those that a bound did not rule out.
  int most_pieces = 0;                // Chunks or partitions that MoE layers were planned with, at most.
  double least_missing_bytes = 0;     // Where none fits: of the smallest, what a GPU lacks.
  std::vector<std::string> warnings;

  friend bool operator==(const LayoutAnswer&, const LayoutAnswer&) = default;
};

}  // namespace moeplan
