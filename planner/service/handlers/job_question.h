// The model and the costs of requests about a whole job: StepRequest, RankLayoutsRequest, AdviseRequest,
// CompareDispatchersRequest.
#pragma once

#include <string>

#include "db/store.h"
#include "models/cost/profile.h"
#include "models/model/hf_config.h"
#include "models/status.h"
#include "planner/service/handlers/profile_selection.h"
#include "planner/shipped/names.h"
#include "proto/convert/network.h"
#include "proto/convert/struct_text.h"
#include "proto/errors.h"

namespace moeplan::service {

// `model` of the request, or the model that ships under `model_name`. kInvalidInput begins with the field.
template <typename Request>
StatusOr<ModelConfig> ModelOf(const Request& request) {
  if (request.has_model()) {
    const std::string& name = request.model_name();
    return ModelFromHfConfig(JsonTextOf(request.model()), name.empty() ? "model" : name);
  }
  if (!request.model_name().empty()) return planner::NamedModel(request.model_name());
  return moeplan::error::Mismatch("model", "nothing", "an object, or modelName");
}

// How many GPUs the request names, else all of its hardware NAME:DxG; 0: as many as its profile has.
template <typename Request>
int GpusOf(const Request& request) {
  return request.gpus() != 0 ? request.gpus() : planner::GpusOfHardware(request.hardware());
}

// The hardware of the request, joined by its network.
template <typename Request>
StatusOr<Profile> HardwareFor(const Request& request, const ModelConfig& model, int gpus) {
  ASSIGN_OR_RETURN(const Network network, NetworkFromProto(request.network(), "network"));
  return planner::HardwareProfile(request.hardware(), gpus, model, /*change=*/{}, network);
}

// The stored profile, the hardware for so many GPUs (0: the profile's), or both: whatever the profile lacks is then the
// hardware's. kNotFound: no such profile. kInvalidInput begins with the field.
template <typename Request>
StatusOr<Profile> ProfileFor(const Store& store, const Request& request, const ModelConfig& model, int gpus) {
  if (request.hardware().empty()) {
    if (request.has_network()) return moeplan::error::Mismatch("network", "it without hardware", "hardware beside it");
    return store.LoadProfile(SelectionOf(request));
  }
  const bool alone = request.profile_name().empty() && !request.has_profile_version();
  if (alone) {
    if (gpus != 0) return HardwareFor(request, model, gpus);
    RETURN_IF_ERROR(planner::HardwareOf(request.hardware().substr(0, request.hardware().find(':'))).status());
    return moeplan::error::Mismatch("gpus", "0", "how many, or hardware as NAME:DOMAINSxGPUS");
  }
  ASSIGN_OR_RETURN(Profile profile, store.LoadProfile(SelectionOf(request)));
  ASSIGN_OR_RETURN(const Profile named, HardwareFor(request, model, gpus == 0 ? Ranks(profile.cluster) : gpus));
  CompleteFrom(named, profile);
  return profile;
}

}  // namespace moeplan::service
