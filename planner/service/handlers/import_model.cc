#include "planner/service/handlers/import_model.h"

#include "models/model/hf_config.h"
#include "proto/convert/struct_text.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr int kUsualPositions = 4096;

Workload LayerAlone(const ModelConfig& model) {
  Workload workload;
  workload.name = model.model_type;
  workload.layer = LayerOf(model);
  workload.layer.capacity_factor = 0;  // As these models are trained: every pair is sent.
  workload.layer.batch = 1;
  workload.layer.sequence_length = model.max_positions > 0 ? model.max_positions : kUsualPositions;
  return workload;
}

}  // namespace

StatusOr<v1::ImportModelResponse> ImportModel(const Environment& /*environment*/, const v1::ImportModelRequest& request,
                                              std::stop_token /*cancelled*/) {
  if (!request.has_model()) return moeplan::error::Mismatch("model", "nothing", "an object");
  ASSIGN_OR_RETURN(const ModelConfig model, ModelFromHfConfig(JsonTextOf(request.model()), "model"));
  v1::ImportModelResponse response;
  response.set_layers(model.layers());
  response.set_moe_layers(model.moe_layers());
  if (model.moe_layers() == 0) return response;
  response.set_router_note(model.router_note);
  *response.mutable_workload() = ToProto(LayerAlone(model));
  response.mutable_workload()->clear_layout();
  return response;
}

}  // namespace moeplan::service
