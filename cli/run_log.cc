#include "cli/run_log.h"

#include "planner/service/plan_log.h"
#include "proto/convert/plan.h"
#include "proto/enum_names.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

// Keeps a RunReport or a MeasuredCandidate.
template <typename Measured>
Status Save(Store& store, PlanId plan, const std::string& schedule, const Measured& measured) {
  const RunRecord run = {.plan = plan,
                         .schedule = schedule,
                         .predicted_time_s = measured.predicted_time_s(),
                         .measured_time_s = measured.measured_time_s(),
                         .report = ToJson(measured, JsonStyle::kCompact)};
  return store.SaveRun(run).status();
}

}  // namespace

StatusOr<PlanId> SavePlan(Store& store, const PlanAnswer& answer) {
  return store.SavePlan(service::RecordOf(ToProto(answer)));
}

Status SaveRun(Store& store, PlanId plan, const v1::RunReport& report) {
  return Save(store, plan, EnumNameOf(report.schedule()), report);
}

Status SaveRuns(Store& store, PlanId plan, const v1::ValidatedWorkload& workload) {
  for (const v1::MeasuredCandidate& candidate : workload.candidates()) {
    RETURN_IF_ERROR(Save(store, plan, EnumNameOf(candidate.schedule()), candidate));
  }
  return OkStatus();
}

}  // namespace moeplan::cli
