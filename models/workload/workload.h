// What a training job asks about: one MoE layer, how it is laid out over the ranks, and what the answer may use.
//
// Symbols of design.md §3 stand beside the fields. Counts are int, bytes and times double. Values only; a Workload is
// trustworthy once ResolveWorkload has returned it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/own_names.h"
#include "models/status.h"

namespace moeplan {

enum class GateKind { kTopK, kSwitch, kBatchPrioritized, kExpertChoice, kRandom, kHash };
// A router makes scores of a token's logits, and weighs experts by them.
enum class ScoreFunction { kSoftmax, kSigmoid };
enum class Codec { kNone, kFp16, kBf16, kFp8, kInt8, kZfp, kFp8Blockwise };  // And own ones.
template <>
inline constexpr int kBuiltIn<Codec> = 7;
// What stands between the matrices of an expert: GELU between two, SwiGLU with three; and own ones.
enum class ExpertKind { kFfn };
template <>
inline constexpr int kBuiltIn<ExpertKind> = 1;
// What of a step a question is about: one pass, or both.
enum class Phase { kForward, kBackward, kTraining };
// One of the two passes of a training step.
enum class Pass { kForward, kBackward };
// How a slice of a source batch learns which slots it owns: exactly, by a prefix sum of counts, or by a fixed share.
enum class CapacityPassing { kExact, kPadded };
// What of a layer is computed again in the backward pass rather than kept: nothing, the attention scores, or all.
enum class Recompute { kNone, kSelective, kFull };
inline constexpr int kMaxZeroStage = 3;

// How a TOP_K gate makes choices and weights of a token's logits z, of which each expert has one. What follows from it
// stands in executor/gate_scores.h. The default is what the papers have: of a softmax over all experts the largest.
struct Router {
  ScoreFunction score_function = ScoreFunction::kSoftmax;
  bool raw_weights = false;  // Weights are the chosen experts' scores; else, of several, parts of their sum.
  double weight_scale = 1;   // What every weight is multiplied with.
  // Experts are cut into groups of neighbours, and a token chooses among those of its best groups alone: of the largest
  // logit or, where choices are corrected, of the largest sum of two corrected scores.
  int expert_groups = 1, groups_per_token = 1;
  bool correction_bias = false;  // Experts are chosen by their scores plus a bias that weights do not have.
  bool bias = false;             // Logits have a bias, which learns.
  bool weighs_input = false;     // A token's weight multiplies what its expert gets, rather than what it gives.

  friend bool operator==(const Router&, const Router&) = default;
};

struct Layer {
  int batch = 0;            // B, samples per tensor-parallel group.
  int sequence_length = 0;  // Of the whole sample; a rank holds L = sequence_length / context_parallel.
  int model_dim = 0;        // M
  int hidden_dim = 0;       // H
  int experts = 0;          // E
  int top_k = 0;            // k
  // f; 0: dropless. An expert then has as many slots in a call as the one that most of the call's pairs chose needs.
  double capacity_factor = 0;
  // Dropless: the most slots that an expert may need, over an even share of the pairs; 0: there is no limit.
  double receive_factor = 0;
  // Dropless: the slots of each expert where they were counted or are assumed (WithSlots); 0: an even share. No field
  // of a message.
  int counted_slots = 0;
  int bytes_per_element = 2;  // 2: BF16 storage and wire, FP32 accumulation; 4: FP32.
  int expert_matrices = 2;    // 3 with a second matrix beside the first.
  ExpertKind expert_kind = ExpertKind::kFfn;
  GateKind gate = GateKind::kTopK;
  Router router;
  // Above 0, with three matrices: the limit of GPT-OSS's SwiGLU (models/workload/expert.h); 0: SwiGLU has none.
  double swiglu_limit = 0;
  bool expert_bias = false;   // After the first matrix (SwiGLU: the first two) and after the last, of every expert.
  int shared_hidden_dim = 0;  // Of an expert that every token visits, cut over MP; 0: there is none.
  // What the router's losses (executor/router_statistics.h) of a source batch count in the job's; 0: nothing.
  double aux_loss_coefficient = 0;  // Of the load-balance loss.
  double z_loss_coefficient = 0;

  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Layout {
  int tensor_parallel = 1;           // N_MP (MoNTA's t)
  int expert_parallel = 1;           // N_EP (MoNTA's e)
  int expert_sharding_parallel = 1;  // N_ESP
  int context_parallel = 1;
  int pipeline_parallel = 1;
  int data_parallel = 0;  // 0: whatever fills the ranks.

  friend bool operator==(const Layout&, const Layout&) = default;
};

// How the router spreads (token, choice) pairs over the experts, where it is not evenly: one of the two. What follows
// from it stands in models/routing/expert_load.h.
struct ExpertRouting {
  std::vector<double> tokens_per_expert;  // By expert, on any scale: only shares matter.
  // The exponent s of Zipf's law: expert i of 0 ... E-1 has a share in proportion to 1/(i+1)^s. 0: all alike.
  std::optional<double> skew;

  friend bool operator==(const ExpertRouting&, const ExpertRouting&) = default;
};
// More experts than that have no routing.
inline constexpr int kMaxRoutedExperts = 1 << 16;

// The most that max_chunks and max_partition_degree may be: MoNTA's rule tries every chunk count up to the former.
inline constexpr int kMostPiecesAsked = 1 << 16;

struct Workload {
  std::string name;
  Layer layer;
  Layout layout;
  double min_chunk_bytes = 1048576;
  int max_chunks = 64;  // At most kMostPiecesAsked, as is the next.
  int max_partition_degree = 8;
  Codec dispatch_codec = Codec::kNone;
  Codec combine_codec = Codec::kNone;
  bool allow_lossy = false;
  // With allow_lossy: the search has rows go by dispatch_codec, and come back by combine_codec, or by none.
  bool named_codecs_only = false;
  Phase phase = Phase::kForward;
  CapacityPassing capacity_passing = CapacityPassing::kExact;
  // What a training job keeps in memory (models/memory); absent: buffers and expert weights alone are counted, and the
  // two below mean nothing.
  std::optional<int> zero_stage;  // 0 to kMaxZeroStage.
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;
  // Of dense layers after this one in the forward pass, whose all-reduce over CP&DP (models/workload/groups.h) may run
  // beside this layer's backward pass: whole elements of bytes_per_element, 0 where phase is kForward.
  double gradient_bytes = 0;
  std::optional<ExpertRouting> routing;  // Absent: every expert gets as many pairs.

  friend bool operator==(const Workload&, const Workload&) = default;
};

// The machines: homogeneous nodes of homogeneous GPUs (or, on the host backend, rank processes).
struct Cluster {
  int nodes = 1;
  int gpus_per_node = 1;           // g
  double peak_flops_per_s = 0;     // Of one GPU; 0: unknown.
  double device_memory_bytes = 0;  // Of one GPU; 0: unknown.
  // The most that one rank can send one way: over the links inside its node, and over its share of the node's network
  // cards. 0: unknown.
  double node_link_bytes_per_s = 0, network_bytes_per_s = 0;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// Checks `workload` against design.md §3 and fills in data_parallel. The error names the field by its JSON path
// ("layer.topK"), what was found and what was expected. Ranks = nodes * gpus_per_node.
StatusOr<Workload> ResolveWorkload(const Workload& workload, const Cluster& cluster);

// Checks nodes, gpus_per_node and the two capacities; `path` names the object in the message ("cluster").
Status ValidateCluster(const Cluster& cluster, const std::string& path);

int Ranks(const Cluster& cluster);

// Derived sizes of a resolved workload, with the letters of the papers.
struct LayerSizes {
  double tokens = 0;            // B·L, the tokens of one source batch.
  double capacity = 0;          // T = k·f·B·L/E, slots per expert; the real value that formulas keep.
  int slots = 0;                // max(1, ceil(T - 1e-9)): the slots per expert that an executor allocates.
  double input_bytes = 0;       // I = x = B·L·M·bpe
  double dispatched_bytes = 0;  // k·f·I = E·T·M·bpe
};
LayerSizes SizesOf(const Layer& layer, const Layout& layout);

// Whether every pair is sent, however many choose an expert.
bool IsDropless(const Layer& layer);
// The f of formulas: of a dropless layer its slots over an even share of the pairs.
double CapacityFactorOf(const Layer& layer, const Layout& layout);
// The same layer with so many slots for each expert, whatever its tokens are. A dropless layer stays one.
Layer WithSlots(Layer layer, const Layout& layout, int slots);

// The names of the contract, such as "FP8".
std::string_view Name(Codec codec);
std::string_view Name(ExpertKind kind);

// Whether a token's choices are limited to the experts of some groups.
bool LimitsGroups(const Router& router);

// How many experts the routing of a token has room for: the k it chooses, or, where experts choose, all of them.
int RoutingWidth(const Layer& layer);

// Flops of the expert FFN's matrices on `rows` rows with a hidden dimension cut to hidden_dim / shards.
double ExpertFlops(const Layer& layer, int shards, double rows);
// The same of the shared expert, cut to shared_hidden_dim / tensor_ranks.
double SharedExpertFlops(const Layer& layer, int tensor_ranks, double rows);

}  // namespace moeplan
