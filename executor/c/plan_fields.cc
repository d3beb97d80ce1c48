#include "executor/c/plan_fields.h"

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
                 .bytes_per_element = OrDefault(plan.bytes_per_element, 2),
                 .expert_matrices = OrDefault(plan.expert_matrices, 2),
                 .expert_bias = plan.expert_bias != 0,
                 .shared_hidden_dim = plan.shared_hidden_dim,
                 .aux_loss_coefficient = plan.aux_loss_coefficient,
                 .z_loss_coefficient = plan.z_loss_coefficient};
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

// One tensor at a time, with the shape that it has here; the first that is missing or too many is remembered.
class Tensors {
 public:
  Tensors(const Layer& layer, const ExpertShard& shard, std::string prefix)
      : gated_(layer.expert_matrices == 3 && shard.experts > 0),
        biased_(layer.expert_bias && shard.experts > 0),
        matrix_(static_cast<size_t>(shard.experts) * shard.hidden * layer.model_dim),
        hidden_(static_cast<size_t>(shard.experts) * shard.hidden),
        last_(shard.adds_last_bias ? static_cast<size_t>(shard.experts) * layer.model_dim : 0),
        prefix_(std::move(prefix)) {}

  template <typename T>
  std::span<T> Up(T* data) {
    return Of("up", data, matrix_);
  }
  template <typename T>
  std::span<T> GateUp(T* data) {
    return Of("gate_up", data, gated_ ? matrix_ : 0);
  }
  template <typename T>
  std::span<T> Down(T* data) {
    return Of("down", data, matrix_);
  }
  template <typename T>
  std::span<T> UpBias(T* data) {
    return Of("up_bias", data, biased_ ? hidden_ : 0);
  }
  template <typename T>
  std::span<T> GateUpBias(T* data) {
    return Of("gate_up_bias", data, gated_ && biased_ ? hidden_ : 0);
  }
  template <typename T>
  std::span<T> DownBias(T* data) {
    return Of("down_bias", data, biased_ ? last_ : 0);
  }
  const Status& status() const { return status_; }

 private:
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

  const bool gated_, biased_;
  const size_t matrix_, hidden_, last_;
  const std::string prefix_;
  Status status_;
};

StatusOr<std::span<const float>> GateOf(const float* data, const Layer& layer) {
  if (data == nullptr) return InvalidInput("gate: found null, expected [E][M] values");
  return std::span(data, static_cast<size_t>(layer.experts) * layer.model_dim);
}

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
  ASSIGN_OR_RETURN(view.gate, GateOf(weights.gate, layer));
  Tensors own(layer, shard.experts, ""), shared(layer, shard.shared, "shared_");
  view.experts = {.shard = shard.experts,
                  .up = own.Up(weights.up),
                  .gate_up = own.GateUp(weights.gate_up),
                  .down = own.Down(weights.down),
                  .up_bias = own.UpBias(weights.up_bias),
                  .gate_up_bias = own.GateUpBias(weights.gate_up_bias),
                  .down_bias = own.DownBias(weights.down_bias)};
  view.shared = {.shard = shard.shared,
                 .up = shared.Up(weights.shared_up),
                 .gate_up = shared.GateUp(weights.shared_gate_up),
                 .down = shared.Down(weights.shared_down),
                 .up_bias = shared.UpBias(weights.shared_up_bias),
                 .gate_up_bias = shared.GateUpBias(weights.shared_gate_up_bias),
                 .down_bias = shared.DownBias(weights.shared_down_bias)};
  RETURN_IF_ERROR(own.status().Within("weights"));
  RETURN_IF_ERROR(shared.status().Within("weights"));
  return view;
}

StatusOr<LayerGradientsView> ViewOf(const moeplan_gradients& gradients, const Layer& layer, const LayerShard& shard) {
  Tensors own(layer, shard.experts, ""), shared(layer, shard.shared, "shared_");
  LayerGradientsView view;
  view.given = true;
  view.experts = {.up = own.Up(gradients.up),
                  .gate_up = own.GateUp(gradients.gate_up),
                  .down = own.Down(gradients.down),
                  .up_bias = own.UpBias(gradients.up_bias),
                  .gate_up_bias = own.GateUpBias(gradients.gate_up_bias),
                  .down_bias = own.DownBias(gradients.down_bias)};
  view.shared = {.up = shared.Up(gradients.shared_up),
                 .gate_up = shared.GateUp(gradients.shared_gate_up),
                 .down = shared.Down(gradients.shared_down),
                 .up_bias = shared.UpBias(gradients.shared_up_bias),
                 .gate_up_bias = shared.GateUpBias(gradients.shared_gate_up_bias),
                 .down_bias = shared.DownBias(gradients.shared_down_bias)};
  RETURN_IF_ERROR(own.status().Within("gradients"));
  RETURN_IF_ERROR(shared.status().Within("gradients"));
  return view;
}

}  // namespace moeplan::executor
