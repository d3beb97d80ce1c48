// Makes the training graph of a transformer on one rank: what `moeplan graph` prints and Lancet's passes read.
//
// One forward and one backward pass of every layer, in the order in which a framework runs them: norm, attention, norm,
// feed-forward network or experts (gate, dispatch, all-to-all, experts, all-to-all, combine), head and loss; then back,
// the gradient of what came in and, of each matrix, that of its weights (weightGradient) right behind it. Gradients are
// added up where they are read. Those of weights that several ranks have alike are summed over them in buckets of 25
// MiB, as PyTorch's DDP does, on a stream beside; the optimizer's step and the gathering of its weights come last. Each
// instruction says of which kernels it consists and how large its outputs are, so that the graph can be run.
//
// Times are those of planner/layout/cost_book, as `layout` and `step` have them: linear layers and attention by their
// shapes where the profile has such samples, else as products of their flops; what only moves through memory by bytes;
// gates under GATE, dispatch and combine under PERMUTE, experts under EXPERT_GEMM and its gradients, all-to-alls over
// EP, extrapolated where the group was not measured. Of k parts each takes the time of one k-th of the work. Seconds,
// bytes, flops. Pure functions.
#pragma once

#include <algorithm>

#include "models/cost/profile.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/training/training_graph.h"
#include "planner/lancet/paper_plan.h"

namespace moeplan::planner {

struct ModelGraphOptions {
  int batch = 1;            // Samples on one rank.
  int sequence_length = 0;  // Tokens of a sample.
  int expert_parallel = 1;  // Ranks over which the experts of a layer lie; divides their number.
  int ranks_per_node = 1;   // Of these on one node.
  int gpus = 0;             // Ranks in all; 0: those of expert_parallel.
  int gpus_per_node = 0;    // 0: ranks_per_node.
  double capacity_factor = 1;
  int bytes_per_element = 2;
  GateKind gate = GateKind::kTopK;
  int max_parts = 8;
  // Dense gradients are summed for each rank's part of the optimizer's states, and weights gathered after its step
  // (ZeRO-1, as `step` has it by default); else they are summed whole.
  bool cuts_optimizer = true;
  int gradient_bytes = 4;     // Of a gradient that is summed.
  RangeLimits limits;         // Written into the graph, by default none.
  bool paper_limits = false;  // Instead of `limits`, those of Lancet's evaluation (LimitsOfPaper).

  int ranks() const { return gpus > 0 ? gpus : expert_parallel; }
  // The ranks that have the same dense weights: all; and the same experts.
  GroupShape dense_replicas() const { return {ranks(), std::min(ranks(), PerNode())}; }
  GroupShape expert_replicas() const {
    const int replicas = ranks() / expert_parallel;
    return {replicas, std::clamp(PerNode() / expert_parallel, 1, replicas)};
  }
  int PerNode() const { return gpus_per_node > 0 ? gpus_per_node : ranks_per_node; }
};

// kInvalidInput: an option is out of range, or the model has no layer of experts. kNotFound: the profile lacks the
// all-to-all or EXPERT_GEMM, with the command that measures them. What was extrapolated or taken as free goes to
// `notes`. The graph passes ValidateTrainingGraph.
StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes);

}  // namespace moeplan::planner
