// PlannerService.Advise, CompareDispatchers and ListNamed.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Says what to set for a training job (planner/messages/advise.h). kInvalidInput names the field; kInfeasible: nothing
// fits that the training system takes; kNotFound: no such profile. Thread-safe; a call works with PoliteThreads().
StatusOr<v1::AdviseResponse> Advise(const Environment& environment, const v1::AdviseRequest& request,
                                    std::stop_token cancelled);

// Says which dispatcher is the fastest, and where that changes (planner/messages/dispatchers.h). Errors are Advise's.
// Thread-safe.
StatusOr<v1::CompareDispatchersResponse> CompareDispatchers(const Environment& environment,
                                                            const v1::CompareDispatchersRequest& request,
                                                            std::stop_token cancelled);

// Lists what ships under a name. Thread-safe.
StatusOr<v1::ListNamedResponse> ListNamed(const Environment& environment, const v1::ListNamedRequest& request,
                                          std::stop_token cancelled);

}  // namespace moeplan::service
