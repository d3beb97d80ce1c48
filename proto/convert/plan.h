// Plans and the whole answer to and from messages, both ways: what was printed is read back to be run.
//
// `best` is the first candidate and is absent when there is none. Reading refuses a `best` that is not the first
// candidate, knobs below 1 and times that are not finite or negative; as the answer to a workload it refuses that to a
// training graph (it has no workload), and the other way round (it has no rules.lancet). Pure.
#pragma once

#include <string>
#include <string_view>

#include "models/plan/plan.h"
#include "models/status.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan {

StatusOr<Timeline> TimelineFromProto(const google::protobuf::RepeatedPtrField<v1::TaskTiming>& message,
                                     const std::string& path);
StatusOr<Plan> PlanFromProto(const v1::Plan& message, std::string_view path = {});
StatusOr<PlanAnswer> PlanAnswerFromProto(const v1::PlanResponse& message);
StatusOr<LancetAnswer> LancetFromProto(const v1::LancetRule& message);
StatusOr<GraphPlanAnswer> GraphPlanAnswerFromProto(const v1::PlanResponse& message);

v1::TaskTiming ToProto(const TaskTiming& timing);
v1::Plan ToProto(const Plan& plan);
v1::LancetRule ToProto(const LancetAnswer& lancet);
v1::PlanResponse ToProto(const PlanAnswer& answer);
v1::PlanResponse ToProto(const GraphPlanAnswer& answer);

}  // namespace moeplan
