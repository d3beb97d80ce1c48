// A plan that a job has, as it was answered, or as it says.
#pragma once

#include <string>

#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan::service {

// kInvalidInput names the field, under `path`; so does a plan of more pieces, tasks or slices than searches answer.
StatusOr<moeplan::Plan> SizedPlanFromProto(const v1::Plan& plan, const std::string& path);

struct HeldPlan {
  Workload workload;   // As answered: resolved.
  moeplan::Plan plan;  // `best`.
  std::string profile_name;
  int profile_version = 0;
};

// Of an answer in any view. kInvalidInput names the field, under `path`: a training graph has no such plan.
StatusOr<HeldPlan> HeldPlanFromProto(const v1::PlanResponse& answer, const std::string& path);

// What there is in an answer of the plan that a job runs: workload, profile and `best` without its timeline.
v1::PlanResponse BriefOf(const v1::PlanResponse& answer);

}  // namespace moeplan::service
