#include "executor/plan_agreement.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "models/fnv1a.h"
#include "models/text.h"
#include "models/workload/names.h"

namespace moeplan::executor {
namespace {

// A field travels as so many bytes of text: what is longer is cut, and ends with a digest of the whole.
constexpr size_t kFieldBytes = 64;
constexpr size_t kShownOfLong = 40;

struct Field {
  std::string name, value;
};

template <typename Values>
std::string Joined(const Values& values) {
  std::string all;
  for (const auto& value : values) all += StrCat(all.empty() ? "" : " ", value);
  return all;
}

// The first field: why a rank has no plan, which is nothing where it has one.
constexpr char kReason[] = "plan";

std::vector<Field> FieldsOf(const LayerPlan& plan) {
  const Layer& layer = plan.workload.layer;
  const Layout& layout = plan.workload.layout;
  const Knobs& knobs = plan.knobs;
  return {{kReason, ""},
          {"cluster.nodes", StrCat(plan.cluster.nodes)},
          {"cluster.gpusPerNode", StrCat(plan.cluster.gpus_per_node)},
          {"layer.batch", StrCat(layer.batch)},
          {"layer.sequenceLength", StrCat(layer.sequence_length)},
          {"layer.modelDim", StrCat(layer.model_dim)},
          {"layer.hiddenDim", StrCat(layer.hidden_dim)},
          {"layer.experts", StrCat(layer.experts)},
          {"layer.topK", StrCat(layer.top_k)},
          {"layer.capacityFactor", StrCat(layer.capacity_factor)},
          {"layer.receiveFactor", StrCat(layer.receive_factor)},
          {"layer.bytesPerElement", StrCat(layer.bytes_per_element)},
          {"layer.expertMatrices", StrCat(layer.expert_matrices)},
          {"layer.expertKind", std::string(Name(layer.expert_kind))},
          {"layer.gate", std::string(Name(layer.gate))},
          {"layer.router.scoreFunction", std::string(Name(layer.router.score_function))},
          {"layer.router.rawWeights", StrCat(layer.router.raw_weights)},
          {"layer.router.weightScale", StrCat(layer.router.weight_scale)},
          {"layer.router.expertGroups", StrCat(layer.router.expert_groups)},
          {"layer.router.groupsPerToken", StrCat(layer.router.groups_per_token)},
          {"layer.router.correctionBias", StrCat(layer.router.correction_bias)},
          {"layer.router.bias", StrCat(layer.router.bias)},
          {"layer.router.weighsInput", StrCat(layer.router.weighs_input)},
          {"layer.swigluLimit", StrCat(layer.swiglu_limit)},
          {"layer.expertBias", StrCat(layer.expert_bias)},
          {"layer.sharedHiddenDim", StrCat(layer.shared_hidden_dim)},
          {"layer.auxLossCoefficient", StrCat(layer.aux_loss_coefficient)},
          {"layer.zLossCoefficient", StrCat(layer.z_loss_coefficient)},
          {"layout.tensorParallel", StrCat(layout.tensor_parallel)},
          {"layout.expertParallel", StrCat(layout.expert_parallel)},
          {"layout.expertShardingParallel", StrCat(layout.expert_sharding_parallel)},
          {"layout.contextParallel", StrCat(layout.context_parallel)},
          {"layout.pipelineParallel", StrCat(layout.pipeline_parallel)},
          {"capacityPassing", std::string(Name(plan.workload.capacity_passing))},
          {"best.schedule", std::string(Name(knobs.family))},
          {"best.chunks", StrCat(knobs.chunks)},
          {"best.partitionDegree", StrCat(knobs.partition_degree)},
          {"best.allToAll", std::string(Name(knobs.all_to_all))},
          {"best.dispatchCodec", std::string(Name(knobs.dispatch_codec))},
          {"best.combineCodec", std::string(Name(knobs.combine_codec))},
          {"best.overlappedGather", StrCat(knobs.overlapped_gather)},
          {"best.chunkShares", Joined(knobs.chunk_shares)},
          {"best.communicationCtas", StrCat(knobs.communication_ctas)},
          {"best.order", Joined(plan.order)}};
}

std::string Shortened(const std::string& value) {
  if (value.size() <= kFieldBytes) return value;
  Fnv1a digest;
  digest.Add(value);
  return StrCat(value.substr(0, kShownOfLong), "... #", digest.value() % 1000000007);
}

std::string At(const std::vector<char>& all, size_t place) {
  const char* const text = all.data() + place * kFieldBytes;
  return {text, strnlen(text, kFieldBytes)};
}

}  // namespace

Status AgreeOnPlan(const StatusOr<LayerPlan>& plan, RankRuntime& rank) {
  std::vector<Field> fields = FieldsOf(plan.ok() ? *plan : LayerPlan());
  if (!plan.ok()) fields.front().value = plan.status().message();
  const int ranks = rank.world().size();
  const size_t bytes = fields.size() * kFieldBytes;
  std::vector<char> own(bytes), all(bytes * ranks);
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string text = Shortened(fields[i].value);
    std::memcpy(own.data() + i * kFieldBytes, text.data(), text.size());
  }
  Device& device = rank.device();
  ASSIGN_OR_RETURN(const DeviceMemory send, device.Allocate(bytes));
  ASSIGN_OR_RETURN(const DeviceMemory received, device.Allocate(bytes * ranks));
  Stream& stream = rank.streams()[StreamKind::kInterNode];
  device.Label(stream, "agree on the plan");
  device.Copy(send.data(), reinterpret_cast<const std::byte*>(own.data()), bytes, stream);
  rank.world().AllGather({send.data(), bytes}, {received.data(), bytes * ranks}, stream);
  device.Copy(reinterpret_cast<std::byte*>(all.data()), received.data(), all.size(), stream);
  RETURN_IF_ERROR(device.Synchronize());
  RETURN_IF_ERROR(plan.status());
  for (int other = 0; other < ranks; ++other) {
    const std::string reason = At(all, other * fields.size());
    if (reason.empty()) continue;
    return InvalidInput(
        StrCat(kReason, ": found none on rank ", other, " (", reason, "), expected the same plan on ", "every rank"));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string expected = At(all, i);
    for (int other = 1; other < ranks; ++other) {
      const std::string found = At(all, other * fields.size() + i);
      if (found == expected) continue;
      return InvalidInput(StrCat(fields[i].name, ": found ", found.empty() ? "nothing" : found, " on rank ", other,
                                 ", expected ", expected.empty() ? "nothing" : expected,
                                 ", as on rank 0; make the layer from the same plan on every rank"));
    }
  }
  return OkStatus();
}

}  // namespace moeplan::executor
