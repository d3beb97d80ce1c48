#include "planner/layout/layout_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "models/text.h"
#include "planner/layout/precision.h"

namespace moeplan::planner {
namespace {

constexpr int kMostGpus = 1 << 20;
constexpr int kMostSamples = 1 << 24;
constexpr int kMostSequence = 1 << 24;
constexpr int kMostNextTokens = 16;

Status OutOfRange(const char* field, int found, int least, int most) {
  return InvalidInput(StrCat(field, ": found ", found, ", expected a whole number of ", least, " to ", most));
}

Status Broken(const char* field, int found, const std::string& expected) {
  return InvalidInput(StrCat("layout.", field, ": found ", found, ", expected ", expected));
}

Status CheckAtLeastOne(const Layout& layout, int micro_batch) {
  const std::pair<const char*, int> fields[] = {{"tensorParallel", layout.tensor_parallel},
                                                {"expertParallel", layout.expert_parallel},
                                                {"expertShardingParallel", layout.expert_sharding_parallel},
                                                {"contextParallel", layout.context_parallel},
                                                {"pipelineParallel", layout.pipeline_parallel},
                                                {"microBatch", micro_batch}};
  for (const auto& [field, found] : fields) {
    if (found < 1) return Broken(field, found, "at least 1");
  }
  return OkStatus();
}

}  // namespace

namespace {

constexpr int kMostDim = kMostDimension;

// What a config.json may say (models/model/hf_config), of models that come from elsewhere.
Status CheckModel(const ModelConfig& model) {
  if (model.layers() < 1 || model.layers() > kMostLayers) return OutOfRange("layers", model.layers(), 1, kMostLayers);
  const bool any_dense = model.moe_layers()<model.layers(), any_experts = model.moe_layers()> 0;
  struct Dimension {
    const char* name;
    int value, least, most;
  };
  const LatentAttention& latent = model.latent_attention;
  const int of_latent = latent.kv_rank > 0 ? 1 : 0;
  for (const auto& [name, value, least, most] :
       {Dimension{"modelDim", model.model_dim, 1, kMostDim},
        {"heads", model.heads, 1, kMostDim},
        {"kvHeads", model.kv_heads, 1, kMostDim},
        {"headDim", model.head_dim, 1 - of_latent, kMostDim},
        {"nopeHeadDim", latent.nope_head_dim, of_latent, kMostDim},
        {"valueHeadDim", latent.value_head_dim, of_latent, kMostDim},
        {"queryRank", latent.q_rank, 0, kMostDim},
        {"denseHiddenDim", model.dense_hidden_dim, any_dense ? 1 : 0, kMostDim},
        {"experts", model.experts, any_experts ? 1 : 0, kMostExperts},
        {"topK", model.top_k, any_experts ? 1 : 0, any_experts ? model.experts : kMostExperts},
        {"expertHiddenDim", model.expert_hidden_dim, any_experts ? 1 : 0, kMostDim},
        {"sharedHiddenDim", model.shared_hidden_dim, 0, kMostDim},
        {"vocabulary", model.vocab, 0, kMostDim}}) {
    if (value < least || value > most) return OutOfRange(name, value, least, most);
  }
  return OkStatus();
}

// Checks the rules that frameworks have for exchanges of experts beside another micro-batch (Megatron Core's
// overlap_moe_expert_parallel_comm and delay_wgrad_compute), and for dispatchers.
Status CheckExchanges(const LayoutRequest& request) {
  if (request.transport != Transport::kNccl && !SendsOnceToANode(request.dispatcher)) {
    return InvalidInput(StrCat("layout.transport: found ", Name(request.transport), " with dispatcher ",
                               Name(request.dispatcher), ", expected NCCL, or dispatcher DEEPEP or HYBRID_EP"));
  }
  if (request.dispatcher != Dispatcher::kAllToAll && request.model.moe_layers() == 0) {
    return InvalidInput(StrCat("layout.dispatcher: found ", Name(request.dispatcher),
                               ", expected ALL_TO_ALL of a model without experts"));
  }
  if (request.overlaps_shared_experts && request.model.shared_hidden_dim > 0 &&
      SelectsAgain(request, RecomputeModule::kSharedExperts) && !SelectsAgain(request, RecomputeModule::kMoe)) {
    return InvalidInput(
        "layout.recomputeModules: found SHARED_EXPERTS with overlapSharedExperts, expected overlapSharedExperts false: "
        "frameworks compute them again only where they run beside nothing");
  }
  if (!request.overlaps_experts) {
    if (!request.delays_weight_gradients) return OkStatus();
    return InvalidInput("layout.delayWeightGradients: found it without overlapExpertParallel, expected both");
  }
  const auto broken = [](const std::string& found, const char* expected) {
    return InvalidInput(StrCat("layout.overlapExpertParallel: found it with ", found, ", expected ", expected));
  };
  if (request.dispatcher == Dispatcher::kAllGather) {
    return broken("dispatcher ALL_GATHER", "ALL_TO_ALL, DEEPEP or HYBRID_EP");
  }
  if (request.recompute == Recompute::kFull) return broken("recompute FULL", "NONE or SELECTIVE");
  if (SelectsAgain(request, RecomputeModule::kMoe)) return broken("recomputeModules MOE", "them without it");
  if (request.overlaps_shared_experts && request.model.shared_hidden_dim > 0) {
    return broken("overlapSharedExperts", "one of both: shared experts then run beside nothing");
  }
  if (request.next_tokens > 1) return broken(StrCat("mtpLayers ", request.next_tokens), "at most 1");
  return OkStatus();
}

Status CheckStages(const LayoutRequest& request) {
  const int layers = request.model.layers();
  if (request.virtual_stages < 1 || request.virtual_stages > layers) {
    return OutOfRange("virtualStages", request.virtual_stages, 1, layers);
  }
  if (request.stages.empty()) return OkStatus();
  long long sum = 0;
  for (const int of_stage : request.stages) {
    if (of_stage < 0) return OutOfRange("stages", of_stage, 0, layers);
    sum += of_stage;
  }
  if (sum == layers) return OkStatus();
  return InvalidInput(StrCat("stages: found ", sum, " layers in all, expected the model's ", layers));
}

}  // namespace

Status CheckKept(const LayoutRequest& request) {
  if (request.recompute != Recompute::kSelective && !request.recompute_modules.empty()) {
    return InvalidInput("recomputeModules: found some without recompute SELECTIVE, expected none");
  }
  if (request.recompute_modules.Has(RecomputeModule::kMlaUpProj) && request.model.latent_attention.kv_rank == 0) {
    return InvalidInput("recomputeModules: found MLA_UP_PROJ, expected it of a model with latent attention alone");
  }
  const bool of_full = request.recompute == Recompute::kFull || request.recompute_layers == 0;
  if (!of_full) return InvalidInput("recomputeLayers: found them without recompute FULL, expected 0");
  if (request.recompute_layers < 0 || request.recompute_layers > request.model.layers()) {
    return OutOfRange("recomputeLayers", request.recompute_layers, 0, request.model.layers());
  }
  // A chunk ends with its virtual stage at the latest, however many layers it might have.
  if (request.recompute_chunk < 1 || request.recompute_chunk > kMostLayers) {
    return OutOfRange("recomputeChunk", request.recompute_chunk, 1, kMostLayers);
  }
  if (request.recompute_chunk > 1 && (request.recompute != Recompute::kFull || request.recompute_layers > 0)) {
    const bool in_full = request.recompute == Recompute::kFull;
    return InvalidInput(StrCat(
        "recomputeChunk: found ", request.recompute_chunk,
        in_full ? StrCat(" with recomputeLayers ", request.recompute_layers) : std::string(" without recompute FULL"),
        ", expected 1: only recompute FULL of all layers takes more"));
  }
  if (request.next_tokens < 0 || request.next_tokens > kMostNextTokens) {
    return OutOfRange("mtpLayers", request.next_tokens, 0, kMostNextTokens);
  }
  return OkStatus();
}

Status CheckLayoutRequest(const LayoutRequest& request, const Cluster& cluster) {
  if (request.gpus < 1 || request.gpus > kMostGpus) return OutOfRange("gpus", request.gpus, 1, kMostGpus);
  if (request.gpus % cluster.gpus_per_node != 0 && cluster.gpus_per_node % request.gpus != 0) {
    return InvalidInput(StrCat("gpus: found ", request.gpus, ", expected whole nodes of the profile's ",
                               cluster.gpus_per_node, " GPUs, or a divisor of them"));
  }
  if (request.global_batch < 1 || request.global_batch > kMostSamples)
    return OutOfRange("globalBatch", request.global_batch, 1, kMostSamples);
  if (request.sequence_length < 1 || request.sequence_length > kMostSequence)
    return OutOfRange("sequenceLength", request.sequence_length, 1, kMostSequence);
  if (request.zero_stage < 0 || request.zero_stage > kMaxZeroStage)
    return OutOfRange("zeroStage", request.zero_stage, 0, kMaxZeroStage);
  if (!std::isfinite(request.capacity_factor) || request.capacity_factor <= 0) {
    return InvalidInput(
        StrCat("capacityFactor: found ", request.capacity_factor, ", expected a finite number above 0"));
  }
  RETURN_IF_ERROR(CheckModel(request.model));
  RETURN_IF_ERROR(CheckStages(request));
  RETURN_IF_ERROR(CheckExchanges(request));
  RETURN_IF_ERROR(CheckKept(request));
  if (request.gradient_bytes != 4 && request.gradient_bytes != 2) {
    return InvalidInput(StrCat("gradientPrecision: found ", request.gradient_bytes, " bytes, expected 4 or 2"));
  }
  if (request.model.encoder_layers > 0) {
    return Unimplemented("layouts of a model with an encoder are not there yet; expected a model of decoder layers");
  }
  return OkStatus();
}

Status CheckPrecision(const LayoutRequest& request, const Profile& profile) {
  if (request.precision == Precision::kBf16 || !profile.roofline) return OkStatus();
  if (SpeedupOf(*profile.roofline, request.precision) > 0) return OkStatus();
  std::string had;
  for (const Precision precision : kPrecisions) {
    if (SpeedupOf(*profile.roofline, precision) > 0) had += StrCat(had.empty() ? "" : " or ", NameOf(precision));
  }
  return InvalidInput(StrCat("layout.precision: found ", NameOf(request.precision), ", expected ", had,
                             ": the hardware has no such products"));
}

Cluster ClusterOf(const LayoutRequest& request, const Cluster& measured) {
  Cluster cluster = measured;
  cluster.gpus_per_node = std::min(measured.gpus_per_node, request.gpus);
  cluster.nodes = request.gpus / cluster.gpus_per_node;
  return cluster;
}

bool LayoutRules::PipelineDivides(int pipeline) const {
  const long long stages = static_cast<long long>(pipeline) * request_.virtual_stages;
  if (request_.gpus % pipeline != 0 || (pipeline == 1 && request_.virtual_stages > 1)) return false;
  if (!OverlapsIn(pipeline)) return false;
  if (!request_.stages.empty()) return stages == static_cast<long long>(request_.stages.size());
  return stages <= request_.model.layers();
}

bool LayoutRules::OverlapsIn(int pipeline) const {
  return !request_.overlaps_experts || pipeline == 1 || request_.virtual_stages > 1;
}

bool LayoutRules::MicroBatchesDivide(int micro_batches, int pipeline) const {
  return request_.virtual_stages == 1 || micro_batches % pipeline == 0;
}

bool LayoutRules::TensorDivides(int tensor, int stage_ranks) const {
  const ModelConfig& model = request_.model;
  const bool any_dense = model.moe_layers() < model.layers();
  return cluster_.gpus_per_node % tensor == 0 && stage_ranks % tensor == 0 && model.heads % tensor == 0 &&
         model.model_dim % tensor == 0 && (!any_dense || model.dense_hidden_dim % tensor == 0) &&
         model.shared_hidden_dim % tensor == 0;
}

bool LayoutRules::ContextsDivide(int contexts, int tensor) const {
  const long long parts = static_cast<long long>(contexts > 1 ? 2 : 1) * contexts;
  if (request_.sequence_length % parts != 0) return false;
  return !request_.sequence_parallel || request_.sequence_length / contexts % tensor == 0;
}

bool LayoutRules::ShardingDivides(int sharding) const {
  if (sharding > 1 && (request_.as_frameworks || request_.dispatcher != Dispatcher::kAllToAll)) return false;
  return cluster_.gpus_per_node % sharding == 0 && request_.model.expert_hidden_dim % sharding == 0;
}

bool LayoutRules::ExpertsDivide(int experts, int sharding, int stage_ranks) const {
  const long long both = static_cast<long long>(sharding) * experts;
  const int node = cluster_.gpus_per_node;
  if (request_.overlaps_experts && experts == 1) return false;
  return request_.model.experts % experts == 0 && stage_ranks % both == 0 && (node % both == 0 || both % node == 0);
}

Status LayoutRules::Check(const Layout& layout, int micro_batch) const {
  RETURN_IF_ERROR(CheckAtLeastOne(layout, micro_batch));
  const ModelConfig& model = request_.model;
  if (request_.virtual_stages > 1 && layout.pipeline_parallel == 1) {
    return Broken("virtualStages", request_.virtual_stages, "1 where pipelineParallel is 1");
  }
  if (request_.overlaps_experts && layout.expert_parallel == 1) {
    return Broken("expertParallel", 1, "at least 2 with overlapExpertParallel");
  }
  if (!OverlapsIn(layout.pipeline_parallel)) {
    return Broken("virtualStages", 1, "at least 2 with overlapExpertParallel and several pipeline stages");
  }
  if (!PipelineDivides(layout.pipeline_parallel)) {
    const bool of_stages = request_.gpus % layout.pipeline_parallel == 0 && request_.virtual_stages > 1;
    if (of_stages && request_.stages.empty()) {
      return Broken("virtualStages", request_.virtual_stages,
                    StrCat("at most ", std::max(1, model.layers() / layout.pipeline_parallel), ", a layer each of ",
                           model.layers(), " over ", layout.pipeline_parallel, " stages"));
    }
    return Broken("pipelineParallel", layout.pipeline_parallel,
                  request_.stages.empty()
                      ? StrCat("a divisor of ", request_.gpus, " GPUs, ", request_.virtual_stages,
                               " times which is at most ", model.layers(), " layers")
                      : StrCat("a divisor of ", request_.gpus, " GPUs, ", request_.virtual_stages,
                               " times which is the ", request_.stages.size(), " virtual stages of `stages`"));
  }
  const int stage_ranks = request_.gpus / layout.pipeline_parallel;
  if (!TensorDivides(layout.tensor_parallel, stage_ranks)) {
    return Broken("tensorParallel", layout.tensor_parallel,
                  StrCat("a divisor of the ", cluster_.gpus_per_node, " GPUs of a node, the ", stage_ranks,
                         " ranks of a stage, ", model.heads, " heads and the model's dimensions"));
  }
  const int replicas = stage_ranks / layout.tensor_parallel;
  if (replicas % layout.context_parallel != 0 || !ContextsDivide(layout.context_parallel, layout.tensor_parallel)) {
    return Broken("contextParallel", layout.context_parallel,
                  StrCat("a divisor of the ", replicas, " ranks of a stage beside TP, twice of which divides ",
                         request_.sequence_length, " tokens, TP the rest with sequence parallelism"));
  }
  const int data = replicas / layout.context_parallel;
  if (layout.data_parallel != 0 && layout.data_parallel != data) {
    return Broken("dataParallel", layout.data_parallel, StrCat(data, ", which fills ", request_.gpus, " GPUs"));
  }
  const int samples = request_.global_batch / data;
  if (!DataDivides(data) || samples % micro_batch != 0) {
    return Broken("microBatch", micro_batch,
                  StrCat("a divisor of the ", request_.global_batch, " samples of ", data, " replicas"));
  }
  if (!MicroBatchesDivide(samples / micro_batch, layout.pipeline_parallel)) {
    return Broken("virtualStages", request_.virtual_stages,
                  StrCat("1, since the ", samples / micro_batch, " micro-batches are no multiple of ",
                         layout.pipeline_parallel, " stages"));
  }
  if (request_.context_exchange == ContextExchange::kAllToAll &&
      model.heads / layout.tensor_parallel % layout.context_parallel != 0) {
    return Broken("contextParallel", layout.context_parallel,
                  StrCat("a divisor of the ", model.heads / layout.tensor_parallel,
                         " heads of a rank, which the all-to-all deals out"));
  }
  if (model.moe_layers() == 0) {
    const bool without = layout.expert_parallel == 1 && layout.expert_sharding_parallel == 1;
    return without ? OkStatus() : Broken("expertParallel", layout.expert_parallel, "1 of a model without experts");
  }
  if (request_.dispatcher != Dispatcher::kAllToAll && layout.expert_sharding_parallel > 1) {
    return Broken("expertShardingParallel", layout.expert_sharding_parallel,
                  StrCat("1 with dispatcher ", Name(request_.dispatcher)));
  }
  if (!ShardingDivides(layout.expert_sharding_parallel)) {
    return Broken("expertShardingParallel", layout.expert_sharding_parallel,
                  StrCat("a divisor of the ", cluster_.gpus_per_node,
                         " GPUs of a node and of an expert's hidden "
                         "dimension ",
                         model.expert_hidden_dim));
  }
  if (!ExpertsDivide(layout.expert_parallel, layout.expert_sharding_parallel, stage_ranks)) {
    return Broken(
        "expertParallel", layout.expert_parallel,
        StrCat("a divisor of ", model.experts, " experts, so that EP·ESP divides the ", stage_ranks,
               " ranks of a stage, and divides or is a multiple of the ", cluster_.gpus_per_node, " GPUs of a node"));
  }
  return OkStatus();
}

}  // namespace moeplan::planner
