// Which dispatcher is the fastest, and where that changes (planner/advice/crossover.h), asked and answered as messages.
#pragma once

#include "models/model/model_config.h"
#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/messages/advise.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// The request's model is `model`; its profile and hardware are for `profile_of` to read, which is called for every
// number of GPUs. kInvalidInput begins with the request's field. kCancelled. Errors also: those of `profile_of`.
StatusOr<v1::CompareDispatchersResponse> AnswerCompareDispatchers(const v1::CompareDispatchersRequest& request,
                                                                  const ModelConfig& model,
                                                                  const ProfileSource& profile_of,
                                                                  const StopSignals& stop = {});

}  // namespace moeplan::planner
