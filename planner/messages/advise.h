// Asks and answers as messages what to set for a training job: the settings that run now are read, the advice
// (planner/advice/advise.h) is put into words and into the training system's settings.
#pragma once

#include <functional>
#include <stop_token>

#include "models/cost/profile.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"

namespace moeplan::planner {

// The training system that settings are for where nobody names one.
inline constexpr const char* kUsualTarget = "megatron";

// The costs for a model on so many GPUs; 0: on as many as the costs are of.
using ProfileSource = std::function<StatusOr<Profile>(const ModelConfig& model, int gpus)>;

// The request's model is `model`; its profile and hardware are for `profile_of` to read. The search works with so many
// threads, at least 1.
//
// kInvalidInput begins with the request's field. kInfeasible: nothing fits that the training system takes. kCancelled.
// Errors also: those of `profile_of`, which is called once. Pure but for it.
StatusOr<v1::AdviseResponse> AnswerAdvise(const v1::AdviseRequest& request, const ModelConfig& model,
                                          const ProfileSource& profile_of, int threads, std::stop_token cancelled = {});

}  // namespace moeplan::planner
