// PlannerService.ExplainRules.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// ExplainRulesOf with a stored profile. kInvalidInput: the workload is wrong; a rule that cannot answer says why.
StatusOr<v1::ExplainRulesResponse> ExplainRules(const Environment& environment, const v1::ExplainRulesRequest& request,
                                                std::stop_token cancelled);

}  // namespace moeplan::service
