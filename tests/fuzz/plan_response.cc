// A plan as `plan` prints it and `run` reads it, of a workload or of a training graph; and one as a job keeps it, with
// what was asked.
#include "moeplan/v1/planner_service.pb.h"
#include "proto/convert/plan.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::PlanResponse>(TextOf(data, size),
                                 [](const v1::PlanResponse& message) { return PlanAnswerFromProto(message); });
  FuzzJsonFile<v1::PlanResponse>(TextOf(data, size),
                                 [](const v1::PlanResponse& message) { return GraphPlanAnswerFromProto(message); });
  const std::optional<v1::KeptPlan> kept = FuzzJsonMessage<v1::KeptPlan>(TextOf(data, size));
  if (!kept) return 0;
  // A job finds what it kept by the text of what it asked, and reads the plan.
  MOEPLAN_CHECK(ToJson(FromJson<v1::KeptPlan>(ToJson(*kept), "kept")->request(), JsonStyle::kCompact) ==
                ToJson(kept->request(), JsonStyle::kCompact));
  const StatusOr<PlanAnswer> plan = PlanAnswerFromProto(kept->plan());
  if (!plan.ok()) CheckRefusal(plan.status());
  return 0;
}
