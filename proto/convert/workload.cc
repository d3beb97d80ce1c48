#include "proto/convert/workload.h"

#include "proto/convert/enums.h"
#include "proto/convert/routing.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

StatusOr<Router> RouterFromProto(const v1::Router& message, std::string_view path) {
  Router router;
  ASSIGN_OR_RETURN(router.score_function,
                   EnumFromProto<ScoreFunction>(message.score_function(), FieldPath(path, "scoreFunction")));
  router.raw_weights = message.raw_weights();
  if (message.has_weight_scale()) router.weight_scale = message.weight_scale();
  if (message.has_expert_groups()) router.expert_groups = message.expert_groups();
  router.groups_per_token = message.has_groups_per_token() ? message.groups_per_token() : router.expert_groups;
  router.correction_bias = message.correction_bias();
  router.bias = message.bias();
  router.weighs_input = message.weighs_input();
  return router;
}

v1::Router ToProto(const Router& router) {
  v1::Router message;
  message.set_score_function(EnumToProto<v1::Score::Function>(router.score_function));
  message.set_raw_weights(router.raw_weights);
  message.set_weight_scale(router.weight_scale);
  message.set_expert_groups(router.expert_groups);
  message.set_groups_per_token(router.groups_per_token);
  message.set_correction_bias(router.correction_bias);
  message.set_bias(router.bias);
  message.set_weighs_input(router.weighs_input);
  return message;
}

}  // namespace

StatusOr<Layer> LayerFromProto(const v1::Layer& message, std::string_view path) {
  Layer layer;
  layer.batch = message.batch();
  layer.sequence_length = message.sequence_length();
  layer.model_dim = message.model_dim();
  layer.hidden_dim = message.hidden_dim();
  layer.experts = message.experts();
  layer.top_k = message.top_k();
  layer.capacity_factor = message.capacity_factor();
  layer.receive_factor = message.receive_factor();
  if (message.has_bytes_per_element()) layer.bytes_per_element = message.bytes_per_element();
  if (message.has_expert_matrices()) layer.expert_matrices = message.expert_matrices();
  ASSIGN_OR_RETURN(layer.expert_kind, EnumFromProto<ExpertKind>(message.expert_kind(), FieldPath(path, "expertKind")));
  if (message.has_router()) {
    ASSIGN_OR_RETURN(layer.router, RouterFromProto(message.router(), FieldPath(path, "router")));
  }
  layer.swiglu_limit = message.swiglu_limit();
  layer.expert_bias = message.expert_bias();
  layer.shared_hidden_dim = message.shared_hidden_dim();
  layer.aux_loss_coefficient = message.aux_loss_coefficient();
  layer.z_loss_coefficient = message.z_loss_coefficient();
  ASSIGN_OR_RETURN(layer.gate, EnumFromProto<GateKind>(message.gate(), FieldPath(path, "gate")));
  return layer;
}

StatusOr<Layout> LayoutFromProto(const v1::Layout& message, std::string_view path) {
  Layout layout;
  if (message.has_tensor_parallel()) layout.tensor_parallel = message.tensor_parallel();
  if (message.has_expert_parallel()) layout.expert_parallel = message.expert_parallel();
  if (message.has_expert_sharding_parallel()) layout.expert_sharding_parallel = message.expert_sharding_parallel();
  if (message.has_context_parallel()) layout.context_parallel = message.context_parallel();
  if (message.has_pipeline_parallel()) layout.pipeline_parallel = message.pipeline_parallel();
  if (message.has_data_parallel() && message.data_parallel() < 1) {
    return error::Mismatch(FieldPath(path, "dataParallel"), StrCat(message.data_parallel()),
                           "a whole number of at least 1, or absent");
  }
  layout.data_parallel = message.data_parallel();
  return layout;
}

StatusOr<Workload> WorkloadFromProto(const v1::Workload& message, std::string_view path) {
  if (!message.has_layer()) return error::Mismatch(FieldPath(path, "layer"), "nothing", "an object");
  Workload workload;
  workload.name = message.name();
  ASSIGN_OR_RETURN(workload.layer, LayerFromProto(message.layer(), FieldPath(path, "layer")));
  ASSIGN_OR_RETURN(workload.layout, LayoutFromProto(message.layout(), FieldPath(path, "layout")));
  if (message.has_min_chunk_bytes()) workload.min_chunk_bytes = message.min_chunk_bytes();
  if (message.has_max_chunks()) workload.max_chunks = message.max_chunks();
  if (message.has_max_partition_degree()) workload.max_partition_degree = message.max_partition_degree();
  ASSIGN_OR_RETURN(workload.dispatch_codec,
                   EnumFromProto<Codec>(message.dispatch_codec(), FieldPath(path, "dispatchCodec")));
  ASSIGN_OR_RETURN(workload.combine_codec,
                   EnumFromProto<Codec>(message.combine_codec(), FieldPath(path, "combineCodec")));
  workload.allow_lossy = message.allow_lossy();
  workload.named_codecs_only = message.named_codecs_only();
  ASSIGN_OR_RETURN(workload.phase, EnumFromProto<Phase>(message.phase(), FieldPath(path, "phase")));
  ASSIGN_OR_RETURN(workload.capacity_passing,
                   EnumFromProto<CapacityPassing>(message.capacity_passing(), FieldPath(path, "capacityPassing")));
  if (message.has_zero_stage()) workload.zero_stage = message.zero_stage();
  ASSIGN_OR_RETURN(workload.recompute, EnumFromProto<Recompute>(message.recompute(), FieldPath(path, "recompute")));
  workload.sequence_parallel = message.sequence_parallel();
  workload.gradient_bytes = message.gradient_bytes();
  if (message.has_routing()) workload.routing = RoutingFromProto(message.routing());
  return workload;
}

StatusOr<std::vector<Workload>> WorkloadsFromProto(const v1::WorkloadGrid& message) {
  if (message.workloads().empty()) return error::Mismatch("workloads", "none", "at least one");
  std::vector<Workload> workloads;
  for (const v1::Workload& item : message.workloads()) {
    const std::string path = ItemPath("workloads", workloads.size());
    ASSIGN_OR_RETURN(Workload workload, WorkloadFromProto(item, path));
    if (workload.name.empty()) workload.name = path;
    workloads.push_back(std::move(workload));
  }
  return workloads;
}

v1::Layer ToProto(const Layer& layer) {
  v1::Layer message;
  message.set_batch(layer.batch);
  message.set_sequence_length(layer.sequence_length);
  message.set_model_dim(layer.model_dim);
  message.set_hidden_dim(layer.hidden_dim);
  message.set_experts(layer.experts);
  message.set_top_k(layer.top_k);
  message.set_capacity_factor(layer.capacity_factor);
  message.set_receive_factor(layer.receive_factor);
  message.set_bytes_per_element(layer.bytes_per_element);
  message.set_expert_matrices(layer.expert_matrices);
  message.set_expert_kind(EnumToProto<v1::Expert::Kind>(layer.expert_kind));
  message.set_gate(EnumToProto<v1::Gate::Kind>(layer.gate));
  if (layer.router != Router()) *message.mutable_router() = ToProto(layer.router);
  if (layer.swiglu_limit != 0) message.set_swiglu_limit(layer.swiglu_limit);
  message.set_expert_bias(layer.expert_bias);
  message.set_shared_hidden_dim(layer.shared_hidden_dim);
  message.set_aux_loss_coefficient(layer.aux_loss_coefficient);
  message.set_z_loss_coefficient(layer.z_loss_coefficient);
  return message;
}

v1::Layout ToProto(const Layout& layout) {
  v1::Layout message;
  message.set_tensor_parallel(layout.tensor_parallel);
  message.set_expert_parallel(layout.expert_parallel);
  message.set_expert_sharding_parallel(layout.expert_sharding_parallel);
  message.set_context_parallel(layout.context_parallel);
  message.set_pipeline_parallel(layout.pipeline_parallel);
  if (layout.data_parallel != 0) message.set_data_parallel(layout.data_parallel);
  return message;
}

v1::Workload ToProto(const Workload& workload) {
  v1::Workload message;
  message.set_name(workload.name);
  *message.mutable_layer() = ToProto(workload.layer);
  *message.mutable_layout() = ToProto(workload.layout);
  message.set_min_chunk_bytes(workload.min_chunk_bytes);
  message.set_max_chunks(workload.max_chunks);
  message.set_max_partition_degree(workload.max_partition_degree);
  message.set_dispatch_codec(EnumToProto<v1::Codec::Kind>(workload.dispatch_codec));
  message.set_combine_codec(EnumToProto<v1::Codec::Kind>(workload.combine_codec));
  message.set_allow_lossy(workload.allow_lossy);
  message.set_named_codecs_only(workload.named_codecs_only);
  message.set_phase(EnumToProto<v1::Phase::Kind>(workload.phase));
  message.set_capacity_passing(EnumToProto<v1::CapacityPassing::Kind>(workload.capacity_passing));
  if (workload.zero_stage) message.set_zero_stage(*workload.zero_stage);
  message.set_recompute(EnumToProto<v1::Recompute::Kind>(workload.recompute));
  message.set_sequence_parallel(workload.sequence_parallel);
  if (workload.gradient_bytes != 0) message.set_gradient_bytes(workload.gradient_bytes);
  if (workload.routing) *message.mutable_routing() = ToProto(*workload.routing);
  return message;
}

v1::WorkloadGrid ToProto(const std::vector<Workload>& workloads) {
  v1::WorkloadGrid message;
  for (const Workload& workload : workloads) *message.add_workloads() = ToProto(workload);
  return message;
}

}  // namespace moeplan
