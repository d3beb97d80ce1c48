// Makes the training graph of a transformer on one rank: what `moeplan graph` prints and Lancet's passes read.
//
// One forward and one backward pass of every layer, in the order in which a framework runs them: norm, attention, norm,
// feed-forward network or experts (gate, dispatch, all-to-all, experts, all-to-all, combine), head and loss; then back,
// the gradient of what came in and, of each matrix, that of its weights (weightGradient) right behind it. Gradients are
// added up where they are read. Those of weights that several ranks have alike are summed over them in buckets of 25
// MiB, as PyTorch's DDP does, on a stream beside; the optimizer's step and the gathering of its weights come last. Each
// instruction says of which kernels it consists and how large its outputs are, so that the graph can be run.
//
// Ranks may share layers and sequences, as `layout` and `step` have it:
//
//   tensor parallelism   Each rank has some heads of attention, some columns of networks without experts and of shared
//                        experts, and a part of the vocabulary. Rows are all-reduced behind the last product of a block
//                        and their gradients in front of the first; with sequence parallelism they are gathered and
//                        reduce-scattered instead, and gathered once more for the first product's weight gradient. A
//                        MoE layer is Parm's S1 in one piece: each rank gates and sends its own part of the rows,
//                        gradients of gates are summed, and without sequence parallelism what comes out is gathered.
//                        With overlaps_tensor exchanges of sequence-parallel blocks, and the products beside them, are
//                        cut into a piece a rank.
//   expert sharding      Each of the experts' ranks has a part of their hidden dimension. Rows are sent to all parts,
//                        as in S1, and what these make of them is summed where it comes back.
//   precision            Products but the last in less than BF16 read rows that were gathered in it.
//   dispatchers          An ALL_GATHER brings all rows in front of the dispatch, and a REDUCE_SCATTER sums them behind
//                        the combination. DeepEP and HybridEP send ALL_TO_ALLs of the rows that travel, once to a node,
//                        and take what planner/layout/dispatch_cost.h says.
//   context parallelism  Keys and values are gathered before attention and once more before its way back, whose
//                        gradients of them are reduce-scattered. Nothing runs meanwhile, where `step` has the scores.
//                        Or heads are traded for tokens before attention, and back behind it (HEAD_EXCHANGE).
//   pipeline stages      The graph is that of one stage, with the embedding in front of the first and the head behind
//                        the last. Each pass has one SEND of a micro-batch's rows, or of their gradients, in which as
//                        many come from the other neighbour, as one-forward-one-backward schedules have it and `step`
//                        counts it: `passed_on` behind the forward pass and `received.dx` behind the backward one; the
//                        last stage gets its rows in `received` instead, and the first its gradients in
//                        `passed_on.dx`. Rows that came in the SEND before take no time.
//   virtual stages       The graph is that of one of them; its SENDs are those of a stage.
//   recomputation        Instructions whose names end in `.recomputed` compute again in the backward pass what was not
//                        kept: whole layers and modules once the way back reaches them, norms and latent projections
//                        once something reads them (docs/decisions/0052).
//   further tokens       Layers that predict them (MTP) stand in front of the head, each with an embedding, a head and
//                        a loss of its own that have the model's weights.
//   ZeRO-3               The weights of each layer, of the embedding and of the head are gathered before both passes,
//                        and their gradients reduce-scattered behind the second.
//
// Collectives over tensor- and context-parallel ranks are on the stream INTRA_NODE, gathers of experts' rows and their
// sums on INTER_NODE as all-to-alls are, those over replicas are then, and
// with ZeRO-3, on COPY, and a SEND on INTER_NODE; else that is on COPY.
//
// Times are those of planner/layout/cost_book, as `layout` and `step` have them: linear layers and attention by their
// shapes where the profile has such samples, else as products of their flops; what only moves through memory by bytes;
// gates under GATE, dispatch and combine under PERMUTE, experts under EXPERT_GEMM and its gradients, collectives by
// their groups, extrapolated where those were not measured.
// A range has no more parts than the batch has samples: a job cuts along these (moeplan.torch), because attention sees
// a sample's tokens together. Parts count as equal, also where their number does not divide the samples. Each of k
// parts takes the time of one k-th of the work, but an all-to-all's and the experts' that of the busiest rank's rows in
// it, over what the whole batch brings (models/routing/part_rows.h). Seconds, bytes, flops. Pure functions.
#pragma once

#include <numeric>
#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/training/training_graph.h"
#include "planner/lancet/graph/transformer.h"
#include "planner/lancet/paper_plan.h"
#include "planner/layout/layout_space.h"

namespace moeplan::planner {

struct ModelGraphOptions {
  int batch = 1;                     // Samples that the ranks of one tensor- and context-parallel group share.
  int sequence_length = 0;           // Tokens of a sample.
  int expert_parallel = 1;           // Ranks over which the experts of a layer lie; divides their number.
  int ranks_per_node = 1;            // Of these on one node.
  int expert_sharding_parallel = 1;  // Ranks that share each of these experts, in parts of its hidden dimension.
  int tensor_parallel = 1;
  int context_parallel = 1;
  int pipeline_parallel = 1;
  int virtual_stages = 1;    // Of each rank of a pipeline.
  std::vector<int> stages;   // Layers of each virtual stage, in pipeline order; empty: as even as possible.
  std::optional<int> stage;  // Virtual stage whose graph it is, from 0; absent: where a micro-batch's way is longest.
  Recompute recompute = Recompute::kNone;
  // LayoutRequest says what these mean, down to next_tokens.
  RecomputeModules recompute_modules;
  int recompute_layers = 0;
  int recompute_chunk = 1;
  AttentionKernel attention = AttentionKernel::kFlash;
  int next_tokens = 0;
  // Whether contexts lie across the experts' ranks; absent: as MoNTA's rule says (planner/layout/layout_space.h).
  std::optional<bool> horizontal_contexts;
  ContextExchange context_exchange = ContextExchange::kKeysValues;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  Transport transport = Transport::kNccl;
  Precision precision = Precision::kBf16;
  bool overlaps_tensor = false;
  bool sequence_parallel = true;  // Between blocks each tensor-parallel rank has its part of the rows alone.
  int gpus = 0;                   // Ranks in all; 0: as few as have room for all of these.
  int gpus_per_node = 0;          // 0: ranks_per_node.
  double capacity_factor = 1;
  bool dropless = false;  // Nothing is dropped: all that the factor tells is how many rows the experts' ranks have.
  int bytes_per_element = 2;
  GateKind gate = GateKind::kTopK;
  int max_parts = 8;  // A range has no more, and no more than the batch has samples.
  // 0: gradients are summed whole. 1 and 2: for each rank's part of the optimizer's states, and weights are gathered
  // after its step. 3: weights are gathered before each pass instead.
  int zero_stage = 1;
  int gradient_bytes = 4;     // Of a gradient that is summed.
  RangeLimits limits;         // Written into the graph, by default none.
  bool paper_limits = false;  // Instead of `limits`, those of Lancet's evaluation (LimitsOfPaper).

  int stage_ranks() const {
    return gpus > 0 ? gpus / pipeline_parallel : std::lcm(expert_ranks(), tensor_parallel * context_parallel);
  }
  int ranks() const { return stage_ranks() * pipeline_parallel; }
  int expert_ranks() const { return expert_parallel * expert_sharding_parallel; }
  int PerNode() const { return gpus_per_node > 0 ? gpus_per_node : ranks_per_node; }
};

// kInvalidInput: an option is out of range, the degrees break a rule that layouts have (planner/layout/layout_rules.h),
// or the model has no layer of experts. kNotFound: the profile lacks a collective or EXPERT_GEMM, with the command that
// measures them. What was extrapolated or taken as free goes to `notes`. The graph passes ValidateTrainingGraph.
StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes);

// The graph of one micro-batch on its way through such a run and back, as `step` counts one: what a step does once is
// not in it (sums of gradients, the optimizer), and what `step` counts by itself takes no time. The latter are weights
// that ZeRO-3 gathers in front of a layer, keys and values of other contexts as far as scores hide them, and with
// overlaps_tensor exchanges of a block, which stay whole, as far as its products hide them.
//
// `profile` is on the cluster of the request's GPUs. Requires a checked request, a point of it and a run with layers.
// Errors are TrainingGraphOf's.
StatusOr<TrainingGraph> GraphOfRun(const LayoutRequest& request, const LayoutPoint& point, const LayerRun& run,
                                   const Profile& profile, PriceNotes& notes);

}  // namespace moeplan::planner
