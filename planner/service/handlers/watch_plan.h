// PlannerService.WatchPlan, without its stream: whether a plan that is held should make way for another.
#pragma once

#include <optional>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Whether the request can be watched at all: a workload with the newest version of a stored profile, a min_gain from 0
// to 1, and a held plan that can be read. kInvalidInput names the field.
Status ValidateWatch(const v1::WatchPlanRequest& request);

// What to tell whoever watches, given `fresh`, the answer to its request now: the fresh plan where nothing is held,
// where what is held cannot be priced any more, and where the fresh one takes less time than the held one under the
// same profile by min_gain and more than nothing. Absent: go on with what is held. Of the request held and min_gain are
// read. Requires a valid one.
StatusOr<std::optional<v1::WatchPlanResponse>> Reconsider(const Environment& environment,
                                                          const v1::WatchPlanRequest& request,
                                                          const v1::PlanResponse& fresh);

}  // namespace moeplan::service
