#include "planner/service/handlers/report_run.h"

#include <cmath>
#include <utility>
#include <vector>

#include "models/text.h"
#include "moeplan/v1/report.pb.h"
#include "planner/drift/run_ratios.h"
#include "planner/service/drift/drift_desk.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/handlers/puts.h"
#include "planner/service/plan_log.h"
#include "proto/convert/plan.h"
#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

constexpr int kMostRanks = 4096;

StatusOr<std::vector<Timeline>> TimelinesOf(const v1::ReportRunRequest& request) {
  if (request.ranks_size() > kMostRanks) {
    return moeplan::error::Mismatch("ranks", StrCat(request.ranks_size(), " ranks"), StrCat("at most ", kMostRanks));
  }
  std::vector<Timeline> ranks;
  for (const v1::RankTimeline& rank : request.ranks()) {
    ASSIGN_OR_RETURN(ranks.emplace_back(),
                     TimelineFromProto(rank.timeline(), FieldPath(ItemPath("ranks", ranks.size()), "timeline")));
  }
  return ranks;
}

RunRecord RecordOf(const v1::ReportRunRequest& request, const RunRatios& run) {
  v1::RunReport report;
  report.set_schedule(request.plan().best().schedule());
  report.set_predicted_time_s(run.predicted_s);
  report.set_measured_time_s(run.measured_s);
  *report.mutable_ranks() = request.ranks();
  return {.schedule = EnumNameOf(report.schedule()),
          .predicted_time_s = run.predicted_s,
          .measured_time_s = run.measured_s,
          .report = ToJson(report, JsonStyle::kCompact),
          .request_id = request.request_id()};
}

}  // namespace

StatusOr<v1::ReportRunResponse> ReportRun(const Environment& environment, const v1::ReportRunRequest& request,
                                          std::stop_token /*cancelled*/) {
  if (environment.drift == nullptr || environment.plan_log == nullptr) return error::ReadOnly();
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  ASSIGN_OR_RETURN(const HeldPlan held, HeldPlanFromProto(request.plan(), "plan"));
  if (held.profile_version < 1) {
    return moeplan::error::Mismatch("plan.profileVersion", StrCat(held.profile_version),
                                    "at least 1: the version of a stored profile");
  }
  ASSIGN_OR_RETURN(const std::vector<Timeline> ranks, TimelinesOf(request));
  ASSIGN_OR_RETURN(const Profile profile, environment.store.LoadProfile({.name = held.profile_name}));
  StatusOr<Workload> resolved = ResolveWorkload(held.workload, profile.cluster);
  if (!resolved.ok()) return resolved.status().Within("plan.workload");
  ASSIGN_OR_RETURN(const RunRatios run, CompareRun(held.plan, *resolved, profile, ranks));

  v1::ReportRunResponse response;
  response.set_predicted_time_s(run.predicted_s);
  response.set_measured_time_s(run.measured_s);
  response.set_profile_version(profile.version);
  ASSIGN_OR_RETURN(const bool is_new, environment.plan_log->KeepRun(request.plan(), RecordOf(request, run)));
  if (!is_new) return response;
  const std::vector<bool> drifted = environment.drift->Observe(profile, *resolved, run.ratios);
  for (size_t i = 0; i < run.ratios.size(); ++i) {
    v1::CostRatio& cost = *response.add_costs();
    cost.set_cost(Describe(run.ratios[i].key));
    cost.set_ratio(std::exp(run.ratios[i].log_ratio));
    cost.set_drifted(drifted[i]);
  }
  return response;
}

StatusOr<v1::ListDriftsResponse> ListDrifts(const Environment& environment, const v1::ListDriftsRequest& request,
                                            std::stop_token /*cancelled*/) {
  if (environment.drift == nullptr) return v1::ListDriftsResponse();
  return environment.drift->List(request);
}

}  // namespace moeplan::service
