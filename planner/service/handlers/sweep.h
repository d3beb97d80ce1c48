// PlannerService.Sweep.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// What `moeplan what-if` prints, on one or two threads beside the caller's, which waits. A caller who leaves is noticed
// at the next point. kInvalidInput names axes, or axes[i].
StatusOr<v1::SweepResponse> Sweep(const Environment& environment, const v1::SweepRequest& request,
                                  std::stop_token cancelled);

}  // namespace moeplan::service
