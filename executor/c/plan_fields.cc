#include "executor/c/plan_fields.h"

#include <array>
#include <string>

#include "models/own_names.h"
#include "models/text.h"
#include "models/workload/names.h"

namespace moeplan::executor {
namespace {

template <typename Enum>
Status ReadName(const char* field, const char* text, Enum& into) {
  if (text == nullptr) return OkStatus();
  const std::optional<Enum> found = NamedValue<Enum>(text);
  if (!found) {
    std::string known;
    for (int value = 0; Name(static_cast<Enum>(value)) != "?"; ++value) {
      known += StrCat(known.empty() ? "" : ", ", Name(static_cast<Enum>(value)));
    }
    return InvalidInput(StrCat(field, ": found ", text, ", expected one of ", known));
  }
  into = *found;
  return OkStatus();
}

int OrDefault(int value, int otherwise) { return value == 0 ? otherwise : value; }

Status CheckList(const char* field, int count, const void* items) {
  if (count < 0) return InvalidInput(StrCat(field, ": found ", count, " items, expected at least 0"));
  if (count > 0 && items == nullptr) return InvalidInput(StrCat(field, ": found null, expected ", count, " items"));
  return OkStatus();
}

Layout LayoutOf(const moeplan_plan& plan) {
  return {.tensor_parallel = OrDefault(plan.tensor_parallel, 1),
          .expert_parallel = OrDefault(plan.expert_parallel, 1),
          .expert_sharding_parallel = OrDefault(plan.expert_sharding_parallel, 1),
          .context_parallel = OrDefault(plan.context_parallel, 1),
          .pipeline_parallel = OrDefault(plan.pipeline_parallel, 1)};
}

StatusOr<Layer> LayerOf(const moeplan_plan& plan) {
  Layer layer = {.batch = plan.batch,
                 .sequence_length = plan.sequence_length,
                 .model_dim = plan.model_dim,
                 .hidden_dim = plan.hidden_dim,
                 .experts = plan.experts,
                 .top_k = plan.top_k,
                 .capacity_factor = plan.capacity_factor,
                 .receive_factor = plan.receive_factor,
                 .bytes_per_element = OrDefault(plan.bytes_per_element, 2),
                 .expert_matrices = OrDefault(plan.expert_matrices, 2),
                 .expert_bias = plan.expert_bias != 0,
                 .shared_hidden_dim = plan.shared_hidden_dim,
                 .aux_loss_coefficient = plan.aux_loss_coefficient,
                 .z_loss_coefficient = plan.z_loss_coefficient};
  layer.router = {.raw_weights = plan.router_raw_weights != 0,
                  .weight_scale = plan.router_weight_scale == 0 ? 1 : plan.router_weight_scale,
                  .expert_groups = OrDefault(plan.router_expert_groups, 1),
                  .correction_bias = plan.router_correction_bias != 0,
                  .bias = plan.router_bias != 0,
                  .weighs_input = plan.router_weighs_input != 0};
  layer.router.groups_per_token = OrDefault(plan.router_groups_per_token, layer.router.expert_groups);
  layer.swiglu_limit = plan.swiglu_limit;
  RETURN_IF_ERROR(ReadName("layer.router.scoreFunction", plan.router_score_function, layer.router.score_function));
  RETURN_IF_ERROR(ReadName("layer.expertKind", plan.expert_kind, layer.expert_kind));
  RETURN_IF_ERROR(ReadName("layer.gate", plan.gate, layer.gate));
  return layer;
}

StatusOr<Knobs> KnobsOf(const moeplan_plan& plan) {
  Knobs knobs = {.chunks = OrDefault(plan.chunks, 1),
                 .partition_degree = OrDefault(plan.partition_degree, 1),
                 .overlapped_gather = plan.overlapped_gather != 0,
                 .communication_ctas = plan.communication_ctas};
  RETURN_IF_ERROR(ReadName("best.schedule", plan.schedule, knobs.family));
  RETURN_IF_ERROR(ReadName("best.allToAll", plan.all_to_all, knobs.all_to_all));
  RETURN_IF_ERROR(ReadName("best.dispatchCodec", plan.dispatch_codec, knobs.dispatch_codec));
  RETURN_IF_ERROR(ReadName("best.combineCodec", plan.combine_codec, knobs.combine_codec));
  RETURN_IF_ERROR(CheckList("best.chunkShares", plan.chunk_share_count, plan.chunk_shares));
  knobs.chunk_shares.assign(plan.chunk_shares, plan.chunk_shares + plan.chunk_share_count);
  return knobs;
}

// Makes spans of pointers, one tensor at a time, and remembers the first that is missing or too many.
class Spans {
 public:
  explicit Spans(std::string prefix) : prefix_(std::move(prefix)) {}

  template <typename T>
  std::span<T> Of(const char* name, T* data, size_t count) {
    if ((data != nullptr) == (count > 0)) return {data, count};
    if (status_.ok()) {
      const char* const found = data == nullptr ? "null" : "memory";
      status_ = InvalidInput(StrCat(prefix_, name, ": found ", found, ", expected ",
                                    count == 0 ? "null, as this rank has no such tensor" : StrCat(count, " values")));
    }
    return {};
  }
  const Status& status() const { return status_; }

 private:
  const std::string prefix_;
  Status status_;
};

// The six tensors of an expert, the shared one or those that are cut: matrices and biases.
template <typename Matrix, typename Bias>
struct ExpertPointers {
  Matrix *up, *gate_up, *down;
  Bias *up_bias, *gate_up_bias, *down_bias;
};
template <typename Matrix, typename Bias>
ExpertPointers(Matrix*, Matrix*, Matrix*, Bias*, Bias*, Bias*)
    -> ExpertPointers<Matrix, Bias>;  // Clang 14 deduces none.

// Weights and gradients name their fields alike.
template <typename Pointers>
auto ExpertsOf(const Pointers& from) {
  return ExpertPointers{from.up, from.gate_up, from.down, from.up_bias, from.gate_up_bias, from.down_bias};
}
template <typename Pointers>
auto SharedOf(const Pointers& from) {
  return ExpertPointers{from.shared_up,      from.shared_gate_up,      from.shared_down,
                        from.shared_up_bias, from.shared_gate_up_bias, from.shared_down_bias};
}

template <typename View, typename Matrix, typename Bias>
Status FillView(const ExpertTensorSizes& sizes, const std::string& prefix, const ExpertPointers<Matrix, Bias>& data,
                View& view) {
  Spans spans(prefix);
  const auto floats = [](Matrix* matrix) { return static_cast<Bias*>(matrix); };
  view.up = spans.Of("up", floats(data.up), sizes.up);
  view.gate_up = spans.Of("gate_up", floats(data.gate_up), sizes.gate_up);
  view.down = spans.Of("down", floats(data.down), sizes.down);
  view.up_bias = spans.Of("up_bias", data.up_bias, sizes.up_bias);
  view.gate_up_bias = spans.Of("gate_up_bias", data.gate_up_bias, sizes.gate_up_bias);
  view.down_bias = spans.Of("down_bias", data.down_bias, sizes.down_bias);
  return spans.status();
}

template <typename Pointers, typename View>
Status FillViews(const Pointers& from, const Layer& layer, const LayerShard& shard, View& view) {
  RETURN_IF_ERROR(FillView(TensorSizesOf(layer, shard.experts), "", ExpertsOf(from), view.experts));
  return FillView(TensorSizesOf(layer, shard.shared), "shared_", SharedOf(from), view.shared);
}

// The same of memory of a device, once a view of it has been made, which says what is there and what is not.
template <typename View>
Status CheckAllOnDevice(const View& view, const std::string& prefix, const Device& device) {
  const std::pair<const char*, const void*> tensors[] = {{"up", view.up.data()},
                                                         {"gate_up", view.gate_up.data()},
                                                         {"down", view.down.data()},
                                                         {"up_bias", view.up_bias.data()},
                                                         {"gate_up_bias", view.gate_up_bias.data()},
                                                         {"down_bias", view.down_bias.data()}};
  for (const auto& [name, data] : tensors) {
    if (data != nullptr) RETURN_IF_ERROR(CheckOnDevice(StrCat(prefix, name).c_str(), data, device));
  }
  return OkStatus();
}

DeviceExperts OnDevice(const ExpertPointers<const void, const float>& experts) {
  const auto elements = [](const void* matrix) { return static_cast<const std::byte*>(matrix); };
  return {.up = elements(experts.up),
          .gate_up = elements(experts.gate_up),
          .down = elements(experts.down),
          .up_bias = experts.up_bias,
          .gate_up_bias = experts.gate_up_bias,
          .down_bias = experts.down_bias};
}
DeviceExpertGradients OnDevice(const ExpertPointers<void, float>& experts, bool matrices_are_elements) {
  const auto bytes = [](void* matrix) { return static_cast<std::byte*>(matrix); };
  return {.up = bytes(experts.up),
          .gate_up = bytes(experts.gate_up),
          .down = bytes(experts.down),
          .matrices_are_elements = matrices_are_elements,
          .up_bias = experts.up_bias,
          .gate_up_bias = experts.gate_up_bias,
          .down_bias = experts.down_bias};
}

size_t BiasesOf(const Layer& layer, bool are_there) { return are_there ? layer.experts : 0; }

}  // namespace

StatusOr<LayerPlan> LayerPlanOf(const moeplan_plan& plan) {
  LayerPlan result;
  result.cluster = {.nodes = plan.nodes, .gpus_per_node = plan.gpus_per_node};
  RETURN_IF_ERROR(ValidateCluster(result.cluster, "cluster"));
  ASSIGN_OR_RETURN(result.workload.layer, LayerOf(plan));
  result.workload.layout = LayoutOf(plan);
  result.workload.allow_lossy = plan.allow_lossy != 0;
  RETURN_IF_ERROR(ReadName("capacityPassing", plan.capacity_passing, result.workload.capacity_passing));
  ASSIGN_OR_RETURN(result.knobs, KnobsOf(plan));
  RETURN_IF_ERROR(CheckList("best.order", plan.order_count, plan.order));
  result.order.assign(plan.order, plan.order + plan.order_count);
  return result;
}

StatusOr<LayerWeightsView> ViewOf(const moeplan_weights& weights, const Layer& layer, const LayerShard& shard) {
  LayerWeightsView view;
  Spans router("");
  view.gate = router.Of("gate", weights.gate, static_cast<size_t>(layer.experts) * layer.model_dim);
  view.gate_bias = router.Of("gate_bias", weights.gate_bias, BiasesOf(layer, layer.router.bias));
  view.correction_bias =
      router.Of("correction_bias", weights.correction_bias, BiasesOf(layer, layer.router.correction_bias));
  RETURN_IF_ERROR(Status(router.status()).Within("weights"));
  view.experts.shard = shard.experts;
  view.shared.shard = shard.shared;
  RETURN_IF_ERROR(FillViews(weights, layer, shard, view).Within("weights"));
  return view;
}

StatusOr<LayerGradientsView> ViewOf(const moeplan_gradients& gradients, const Layer& layer, const LayerShard& shard) {
  LayerGradientsView view;
  view.given = true;
  RETURN_IF_ERROR(FillViews(gradients, layer, shard, view).Within("gradients"));
  return view;
}

StatusOr<GateGradientsView> GateViewOf(const std::string& prefix, float* weight, float* bias, const Layer& layer) {
  Spans spans(prefix);
  const std::string suffix = prefix.empty() ? "_gradient" : "";
  const auto of = [&](const char* name, float* data, size_t count) {
    return spans.Of(StrCat(name, suffix).c_str(), data, count);
  };
  const GateGradientsView view = {of("gate", weight, static_cast<size_t>(layer.experts) * layer.model_dim),
                                  of("gate_bias", bias, BiasesOf(layer, layer.router.bias))};
  RETURN_IF_ERROR(spans.status());
  return view;
}

Status CheckOnDevice(const char* name, const void* memory, const Device& device) {
  if (device.Holds(memory)) return OkStatus();
  return InvalidInput(
      StrCat(name, ": found memory that is not the card's, expected the card's, as the rank runs there"));
}

StatusOr<DeviceWeights> DeviceWeightsOf(const moeplan_weights& weights, const Layer& layer, const LayerShard& shard,
                                        const Device& device) {
  ASSIGN_OR_RETURN(const LayerWeightsView view, ViewOf(weights, layer, shard));
  const std::pair<const char*, const float*> router[] = {{"weights.gate", weights.gate},
                                                         {"weights.gate_bias", weights.gate_bias},
                                                         {"weights.correction_bias", weights.correction_bias}};
  for (const auto& [name, data] : router) {
    if (data != nullptr) RETURN_IF_ERROR(CheckOnDevice(name, data, device));
  }
  RETURN_IF_ERROR(CheckAllOnDevice(view.experts, "weights.", device));
  RETURN_IF_ERROR(CheckAllOnDevice(view.shared, "weights.shared_", device));
  return DeviceWeights{.gate = weights.gate,
                       .gate_bias = weights.gate_bias,
                       .correction_bias = weights.correction_bias,
                       .experts = OnDevice(ExpertsOf(weights)),
                       .shared = OnDevice(SharedOf(weights))};
}

StatusOr<DeviceGradients> DeviceGradientsOf(const moeplan_gradients& gradients, const Layer& layer,
                                            const LayerShard& shard, const Device& device) {
  ASSIGN_OR_RETURN(const LayerGradientsView view, ViewOf(gradients, layer, shard));
  RETURN_IF_ERROR(CheckAllOnDevice(view.experts, "gradients.", device));
  RETURN_IF_ERROR(CheckAllOnDevice(view.shared, "gradients.shared_", device));
  const bool elements = gradients.matrices_are_elements != 0;
  return DeviceGradients{.experts = OnDevice(ExpertsOf(gradients), elements),
                         .shared = OnDevice(SharedOf(gradients), elements)};
}

}  // namespace moeplan::executor
