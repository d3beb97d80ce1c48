// A plan that a job has, as it was answered.
#pragma once

#include <string>

#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan::service {

struct HeldPlan {
  Workload workload;  // As answered: resolved.
  Plan plan;          // `best`.
  std::string profile_name;
  int profile_version = 0;
};

// Of an answer in any view. kInvalidInput names the field, under `path`; a training graph has no such plan.
StatusOr<HeldPlan> HeldPlanFromProto(const v1::PlanResponse& answer, const std::string& path);

}  // namespace moeplan::service
