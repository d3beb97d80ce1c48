#include "models/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/check.h"
#include "models/text.h"
#include "models/workload/expert.h"
#include "models/workload/groups.h"
#include "models/workload/names.h"

namespace moeplan {
namespace {

// What one field was and should have been; `path` is the field's JSON path.
Status BadField(const std::string& path, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat(path, ": found ", found, ", expected ", expected));
}

Status AtLeastOne(const std::string& path, int value) {
  return value >= 1 ? OkStatus() : BadField(path, StrCat(value), "a whole number of at least 1");
}

Status CheckPieces(const std::string& path, int value) {
  RETURN_IF_ERROR(AtLeastOne(path, value));
  return value <= kMostPiecesAsked ? OkStatus() : BadField(path, StrCat(value), StrCat("at most ", kMostPiecesAsked));
}

Status FiniteAtLeast(const std::string& path, double value, double least) {
  if (std::isfinite(value) && value >= least) return OkStatus();
  return BadField(path, StrCat(value), StrCat("a finite number of at least ", least));
}

Status Positive(const std::string& path, double value) {
  if (std::isfinite(value) && value > 0) return OkStatus();
  return BadField(path, StrCat(value), "a finite number above 0");
}

Status CheckCapacity(const Layer& layer) {
  RETURN_IF_ERROR(FiniteAtLeast("layer.capacityFactor", layer.capacity_factor, 0));
  if (IsDropless(layer) && layer.gate == GateKind::kExpertChoice) {
    return BadField("layer.capacityFactor", StrCat(layer.capacity_factor),
                    "above 0, because with EXPERT_CHOICE experts take as many tokens as they have slots");
  }
  if (layer.receive_factor == 0) return OkStatus();
  if (!IsDropless(layer)) {
    return BadField("layer.receiveFactor", StrCat(layer.receive_factor),
                    "0, because layer.capacityFactor says how many slots an expert has");
  }
  return FiniteAtLeast("layer.receiveFactor", layer.receive_factor, 1);
}

Status CheckGroups(const Layer& layer) {
  const int groups = layer.router.expert_groups, chosen = layer.router.groups_per_token;
  if (groups < 1 || layer.experts % groups != 0) {
    return BadField("layer.router.expertGroups", StrCat(groups),
                    StrCat("a divisor of layer.experts, which is ", layer.experts));
  }
  const int of_group = layer.experts / groups, needed = (layer.top_k + of_group - 1) / of_group;
  if (chosen < needed || chosen > groups) {
    return BadField("layer.router.groupsPerToken", StrCat(chosen),
                    StrCat(needed, " to ", groups, ", so that there are layer.topK experts to choose among"));
  }
  if (LimitsGroups(layer.router) && layer.router.correction_bias && of_group < 2) {
    return BadField("layer.router.expertGroups", StrCat(groups),
                    "groups of at least 2 experts, as with correctionBias the two best of a group count");
  }
  return OkStatus();
}

Status CheckRouter(const Layer& layer) {
  const Router& router = layer.router;
  RETURN_IF_ERROR(Positive("layer.router.weightScale", router.weight_scale));
  if (layer.gate != GateKind::kTopK && router != Router()) {
    return BadField("layer.router", "an object", StrCat("none with gate ", Name(layer.gate), ", but with TOP_K"));
  }
  if (router.correction_bias && router.score_function != ScoreFunction::kSigmoid) {
    return BadField("layer.router.correctionBias", "true", "false unless layer.router.scoreFunction is SIGMOID");
  }
  if (router.weighs_input && layer.top_k != 1) {
    return BadField("layer.router.weighsInput", "true",
                    StrCat("false unless layer.topK is 1, and it is ", layer.top_k));
  }
  return CheckGroups(layer);
}

Status CheckSwiGluLimit(const Layer& layer) {
  RETURN_IF_ERROR(FiniteAtLeast("layer.swigluLimit", layer.swiglu_limit, 0));
  if (layer.swiglu_limit == 0 || (layer.expert_matrices == 3 && layer.expert_kind == ExpertKind::kFfn))
    return OkStatus();
  return BadField("layer.swigluLimit", StrCat(layer.swiglu_limit), "0 unless experts are FFN of 3 matrices");
}

Status CheckLayer(const Layer& layer) {
  RETURN_IF_ERROR(AtLeastOne("layer.batch", layer.batch));
  RETURN_IF_ERROR(AtLeastOne("layer.sequenceLength", layer.sequence_length));
  RETURN_IF_ERROR(AtLeastOne("layer.modelDim", layer.model_dim));
  RETURN_IF_ERROR(AtLeastOne("layer.hiddenDim", layer.hidden_dim));
  RETURN_IF_ERROR(AtLeastOne("layer.experts", layer.experts));
  RETURN_IF_ERROR(AtLeastOne("layer.topK", layer.top_k));
  RETURN_IF_ERROR(CheckCapacity(layer));
  if (layer.bytes_per_element != 2 && layer.bytes_per_element != 4) {
    return BadField("layer.bytesPerElement", StrCat(layer.bytes_per_element), "2 (BF16) or 4 (FP32)");
  }
  if (layer.expert_matrices != 2 && layer.expert_matrices != 3) {
    return BadField("layer.expertMatrices", StrCat(layer.expert_matrices), "2 (GELU) or 3 (SwiGLU)");
  }
  if (layer.expert_kind != ExpertKind::kFfn && layer.expert_matrices != OwnExpertOf(layer.expert_kind).matrices) {
    return BadField(
        "layer.expertMatrices", StrCat(layer.expert_matrices),
        StrCat(OwnExpertOf(layer.expert_kind).matrices, ", because layer.expertKind is ", Name(layer.expert_kind)));
  }
  if (layer.shared_hidden_dim < 0) {
    return BadField("layer.sharedHiddenDim", StrCat(layer.shared_hidden_dim), "a whole number of at least 0");
  }
  RETURN_IF_ERROR(FiniteAtLeast("layer.auxLossCoefficient", layer.aux_loss_coefficient, 0));
  RETURN_IF_ERROR(FiniteAtLeast("layer.zLossCoefficient", layer.z_loss_coefficient, 0));
  if (layer.top_k > layer.experts) {
    return BadField("layer.topK", StrCat(layer.top_k), StrCat("at most layer.experts, which is ", layer.experts));
  }
  if (layer.gate == GateKind::kSwitch && layer.top_k != 1) {
    return BadField("layer.topK", StrCat(layer.top_k), "1, because layer.gate is SWITCH");
  }
  RETURN_IF_ERROR(CheckSwiGluLimit(layer));
  return CheckRouter(layer);
}

Status CheckDegrees(const Layout& layout) {
  RETURN_IF_ERROR(AtLeastOne("layout.tensorParallel", layout.tensor_parallel));
  RETURN_IF_ERROR(AtLeastOne("layout.expertParallel", layout.expert_parallel));
  RETURN_IF_ERROR(AtLeastOne("layout.expertShardingParallel", layout.expert_sharding_parallel));
  RETURN_IF_ERROR(AtLeastOne("layout.contextParallel", layout.context_parallel));
  RETURN_IF_ERROR(AtLeastOne("layout.pipelineParallel", layout.pipeline_parallel));
  if (layout.data_parallel < 0) {
    return BadField("layout.dataParallel", StrCat(layout.data_parallel), "a whole number of at least 1, or absent");
  }
  return OkStatus();
}

constexpr double kMostGradientBytes = 1e15;

Status CheckGradients(const Workload& workload) {
  const double bytes = workload.gradient_bytes;
  RETURN_IF_ERROR(FiniteAtLeast("gradientBytes", bytes, 0));
  if (bytes > kMostGradientBytes)
    return BadField("gradientBytes", StrCat(bytes), StrCat("at most ", kMostGradientBytes));
  if (std::fmod(bytes, workload.layer.bytes_per_element) != 0) {
    return BadField("gradientBytes", StrCat(bytes),
                    StrCat("whole elements of layer.bytesPerElement, which is ", workload.layer.bytes_per_element));
  }
  if (bytes > 0 && workload.phase == Phase::kForward) {
    return BadField("gradientBytes", StrCat(bytes),
                    "0 in a forward pass, which has no gradients to exchange; set phase to BACKWARD or TRAINING");
  }
  return OkStatus();
}

// The degrees multiply up to at most the ranks, and the rest is data parallel.
StatusOr<int> DataParallelThatFills(const Layout& layout, int ranks) {
  const double other_degrees =
      static_cast<double>(layout.tensor_parallel) * layout.context_parallel * layout.pipeline_parallel;
  if (other_degrees > ranks || ranks % static_cast<int>(other_degrees) != 0) {
    return InvalidInput(StrCat("layout: tensorParallel·contextParallel·pipelineParallel is ", other_degrees,
                               ", expected a divisor of the cluster's ", ranks, " ranks"));
  }
  const int fills = ranks / static_cast<int>(other_degrees);
  if (layout.data_parallel != 0 && layout.data_parallel != fills) {
    return BadField("layout.dataParallel", StrCat(layout.data_parallel),
                    StrCat(fills, ", so that TP·CP·DP·PP is the cluster's ", ranks, " ranks"));
  }
  return fills;
}

Status FitsNodes(const std::string& path, double degree, int gpus_per_node) {
  const int whole = static_cast<int>(std::min<double>(degree, std::numeric_limits<int>::max()));
  if (gpus_per_node % whole == 0 || whole % gpus_per_node == 0) return OkStatus();
  return BadField(path, StrCat(degree),
                  StrCat("a divisor or a multiple of the cluster's ", gpus_per_node, " GPUs per node"));
}

Status CheckLayout(const Layer& layer, const Layout& layout, const Cluster& cluster) {
  const int stage_ranks = Ranks(cluster) / layout.pipeline_parallel;
  const double expert_ranks = static_cast<double>(layout.expert_parallel) * layout.expert_sharding_parallel;
  if (expert_ranks > stage_ranks || stage_ranks % static_cast<int>(expert_ranks) != 0) {
    return InvalidInput(StrCat("layout: expertParallel·expertShardingParallel is ", expert_ranks,
                               ", expected a divisor of the ", stage_ranks, " ranks of a pipeline stage"));
  }
  RETURN_IF_ERROR(FitsNodes("layout.tensorParallel", layout.tensor_parallel, cluster.gpus_per_node));
  RETURN_IF_ERROR(FitsNodes("layout.expertShardingParallel", layout.expert_sharding_parallel, cluster.gpus_per_node));
  RETURN_IF_ERROR(FitsNodes("layout.expertParallel·expertShardingParallel", expert_ranks, cluster.gpus_per_node));
  if (layer.experts % layout.expert_parallel != 0) {
    return BadField("layout.expertParallel", StrCat(layout.expert_parallel),
                    StrCat("a divisor of layer.experts, which is ", layer.experts));
  }
  if (layer.shared_hidden_dim > 0 && layer.shared_hidden_dim < layout.tensor_parallel) {
    return BadField("layer.sharedHiddenDim", StrCat(layer.shared_hidden_dim),
                    StrCat("0 or at least layout.tensorParallel, which is ", layout.tensor_parallel));
  }
  if (layer.sequence_length % layout.context_parallel != 0) {
    return BadField("layout.contextParallel", StrCat(layout.context_parallel),
                    StrCat("a divisor of layer.sequenceLength, which is ", layer.sequence_length));
  }
  return OkStatus();
}

Status CheckTokensPerExpert(const Layer& layer, const std::vector<double>& tokens_per_expert) {
  if (tokens_per_expert.size() != static_cast<size_t>(layer.experts)) {
    return BadField("routing.tokensPerExpert", StrCat(tokens_per_expert.size(), " counts"),
                    StrCat("one for each of layer.experts, which is ", layer.experts));
  }
  double most = 0;
  for (size_t expert = 0; expert < tokens_per_expert.size(); ++expert) {
    RETURN_IF_ERROR(FiniteAtLeast(StrCat("routing.tokensPerExpert[", expert, "]"), tokens_per_expert[expert], 0));
    most = std::max(most, tokens_per_expert[expert]);
  }
  if (most > 0) return OkStatus();
  return BadField("routing.tokensPerExpert", "only zeros", "at least one count above 0");
}

Status CheckRouting(const Layer& layer, const ExpertRouting& routing) {
  if (routing.tokens_per_expert.empty() != routing.skew.has_value()) {
    return BadField("routing", routing.skew ? "tokensPerExpert and skew" : "neither tokensPerExpert nor skew",
                    "exactly one of them");
  }
  if (layer.gate == GateKind::kExpertChoice) {
    return BadField("routing", "an object", "none with gate EXPERT_CHOICE: each expert takes as many tokens");
  }
  if (layer.experts > kMaxRoutedExperts) {
    return BadField("layer.experts", StrCat(layer.experts), StrCat("at most ", kMaxRoutedExperts, " with routing"));
  }
  if (routing.skew) return FiniteAtLeast("routing.skew", *routing.skew, 0);
  return CheckTokensPerExpert(layer, routing.tokens_per_expert);
}

double FactorFor(const Layer& layer, double tokens) {
  if (!IsDropless(layer)) return layer.capacity_factor;
  return layer.counted_slots == 0 ? 1 : layer.counted_slots * (layer.experts / (layer.top_k * tokens));
}

// Rows are counted in int: of a rank's tokens, k·f times over, gathered over ESP.
Status CheckRows(const Layer& layer, const Layout& layout) {
  constexpr double kMostRows = std::numeric_limits<int>::max();
  const LayerSizes sizes = SizesOf(layer, layout);
  const double pairs = sizes.tokens * layer.top_k * std::max(1.0, CapacityFactorOf(layer, layout));
  const double rows = std::max(pairs, static_cast<double>(layer.experts)) * layout.expert_sharding_parallel;
  if (rows <= kMostRows) return OkStatus();
  return BadField("layer.batch·layer.sequenceLength", StrCat(sizes.tokens, " tokens a rank, ", rows, " rows"),
                  "at most 2147483647 rows: tokens · topK · capacityFactor · expertShardingParallel");
}

}  // namespace

int Ranks(const Cluster& cluster) { return cluster.nodes * cluster.gpus_per_node; }

Status ValidateCluster(const Cluster& cluster, const std::string& path) {
  RETURN_IF_ERROR(AtLeastOne(path + ".nodes", cluster.nodes));
  RETURN_IF_ERROR(AtLeastOne(path + ".gpusPerNode", cluster.gpus_per_node));
  if (static_cast<double>(cluster.nodes) * cluster.gpus_per_node > 1 << 24) {
    return BadField(path + ".nodes", StrCat(cluster.nodes), "at most 16777216 ranks in all");
  }
  RETURN_IF_ERROR(FiniteAtLeast(path + ".peakFlopsPerS", cluster.peak_flops_per_s, 0));
  RETURN_IF_ERROR(FiniteAtLeast(path + ".deviceMemoryBytes", cluster.device_memory_bytes, 0));
  RETURN_IF_ERROR(FiniteAtLeast(path + ".nodeLinkBytesPerS", cluster.node_link_bytes_per_s, 0));
  return FiniteAtLeast(path + ".networkBytesPerS", cluster.network_bytes_per_s, 0);
}

StatusOr<Workload> ResolveWorkload(const Workload& workload, const Cluster& cluster) {
  RETURN_IF_ERROR(ValidateCluster(cluster, "cluster"));
  RETURN_IF_ERROR(CheckLayer(workload.layer));
  if (IsDropless(workload.layer) && workload.capacity_passing == CapacityPassing::kPadded) {
    return BadField("capacityPassing", "PADDED",
                    "EXACT, because a layer without layer.capacityFactor drops nothing, and fixed shares would");
  }
  RETURN_IF_ERROR(CheckDegrees(workload.layout));
  RETURN_IF_ERROR(Positive("minChunkBytes", workload.min_chunk_bytes));
  RETURN_IF_ERROR(CheckPieces("maxChunks", workload.max_chunks));
  RETURN_IF_ERROR(CheckPieces("maxPartitionDegree", workload.max_partition_degree));
  if (workload.zero_stage && (*workload.zero_stage < 0 || *workload.zero_stage > kMaxZeroStage)) {
    return BadField("zeroStage", StrCat(*workload.zero_stage), StrCat("0 to ", kMaxZeroStage, ", or absent"));
  }
  RETURN_IF_ERROR(CheckGradients(workload));
  if (workload.routing) RETURN_IF_ERROR(CheckRouting(workload.layer, *workload.routing));
  Workload resolved = workload;
  ASSIGN_OR_RETURN(resolved.layout.data_parallel, DataParallelThatFills(workload.layout, Ranks(cluster)));
  RETURN_IF_ERROR(CheckLayout(resolved.layer, resolved.layout, cluster));
  RETURN_IF_ERROR(CheckRows(resolved.layer, resolved.layout));
  return resolved;
}

LayerSizes SizesOf(const Layer& layer, const Layout& layout) {
  LayerSizes sizes;
  sizes.tokens = static_cast<double>(layer.batch) * (layer.sequence_length / layout.context_parallel);
  const double factor = FactorFor(layer, sizes.tokens);
  const bool counted = IsDropless(layer) && layer.counted_slots > 0;
  sizes.capacity = counted ? layer.counted_slots : layer.top_k * factor * sizes.tokens / layer.experts;
  sizes.slots =
      static_cast<int>(std::clamp(std::ceil(sizes.capacity - 1e-9), 1.0, double{std::numeric_limits<int>::max()}));
  sizes.input_bytes = sizes.tokens * layer.model_dim * layer.bytes_per_element;
  sizes.dispatched_bytes = layer.top_k * factor * sizes.input_bytes;
  return sizes;
}

bool IsDropless(const Layer& layer) { return layer.capacity_factor == 0; }

double CapacityFactorOf(const Layer& layer, const Layout& layout) {
  return FactorFor(layer, SizesOf(layer, layout).tokens);
}

Layer WithSlots(Layer layer, const Layout& layout, int slots) {
  const LayerSizes sizes = SizesOf(layer, layout);
  if (IsDropless(layer)) {
    layer.counted_slots = slots;
  } else if (sizes.slots != slots) {
    layer.capacity_factor = (slots - 0.5) * layer.experts / (layer.top_k * sizes.tokens);
  }
  MOEPLAN_CHECK(SizesOf(layer, layout).slots == slots);
  return layer;
}

bool LimitsGroups(const Router& router) { return router.groups_per_token < router.expert_groups; }

int RoutingWidth(const Layer& layer) { return layer.gate == GateKind::kExpertChoice ? layer.experts : layer.top_k; }

double ExpertFlops(const Layer& layer, int shards, double rows) {
  return 2.0 * layer.expert_matrices * rows * layer.model_dim * layer.hidden_dim / shards;
}

double SharedExpertFlops(const Layer& layer, int tensor_ranks, double rows) {
  return 2.0 * layer.expert_matrices * rows * layer.model_dim * layer.shared_hidden_dim / tensor_ranks;
}

}  // namespace moeplan
