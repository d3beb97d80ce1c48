#include "planner/service/handlers/report_run.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/routing/expert_load.h"
#include "models/text.h"
#include "moeplan/v1/report.pb.h"
#include "planner/drift/run_ratios.h"
#include "planner/search/price_plan.h"
#include "planner/service/drift/drift_desk.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/plan_log.h"
#include "planner/service/puts.h"
#include "proto/convert/plan.h"
#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

constexpr int kMostRanks = 4096;
constexpr double kLongestS = 1e6;

StatusOr<std::vector<Timeline>> TimelinesOf(const v1::ReportRunRequest& request) {
  if (request.ranks_size() > kMostRanks) {
    return moeplan::error::Mismatch("ranks", StrCat(request.ranks_size(), " ranks"), StrCat("at most ", kMostRanks));
  }
  std::vector<Timeline> ranks;
  for (const v1::RankTimeline& rank : request.ranks()) {
    const std::string path = FieldPath(ItemPath("ranks", ranks.size()), "timeline");
    ASSIGN_OR_RETURN(ranks.emplace_back(), TimelineFromProto(rank.timeline(), path));
    for (size_t i = 0; i < ranks.back().size(); ++i) {
      const double end_s = ranks.back()[i].end_s;
      if (end_s <= kLongestS) continue;
      return moeplan::error::Mismatch(FieldPath(ItemPath(path, i), "endS"), StrCat(end_s),
                                      StrCat("at most ", kLongestS));
    }
  }
  return ranks;
}

// What the version that made the plan predicts of it; where that cannot be said, what the newest does.
double PredictedS(const Store& store, const HeldPlan& held, const Workload& resolved, const Profile& newest,
                  double newest_s) {
  if (held.profile_version == newest.version) return newest_s;
  const StatusOr<Profile> own = store.LoadProfile({.name = held.profile_name, .version = held.profile_version});
  if (!own.ok()) return newest_s;
  const StatusOr<planner::Candidate> priced = planner::PriceFilledIn(held.plan, resolved, *own);
  return priced.ok() ? priced->time_s() : newest_s;
}

// With the timeline of the rank that ended last: the others' would fill the disk.
RunRecord RecordOf(const v1::ReportRunRequest& request, double predicted_s, const planner::RunRatios& run,
                   const std::vector<Timeline>& ranks) {
  const auto end_s = [](const Timeline& rank) {
    return rank.empty() ? 0 : std::ranges::max(rank, {}, &TaskTiming::end_s).end_s;
  };
  const auto slowest = std::ranges::max_element(ranks, {}, end_s) - ranks.begin();
  v1::RunReport report;
  report.set_schedule(request.plan().best().schedule());
  report.set_predicted_time_s(predicted_s);
  report.set_measured_time_s(run.measured_s);
  *report.add_ranks() = request.ranks(static_cast<int>(slowest));
  return {.schedule = EnumNameOf(report.schedule()),
          .predicted_time_s = predicted_s,
          .measured_time_s = run.measured_s,
          .report = ToJson(report, JsonStyle::kCompact),
          .request_id = request.request_id()};
}

}  // namespace

StatusOr<v1::ReportRunResponse> ReportRun(const Environment& environment, const v1::ReportRunRequest& request,
                                          std::stop_token cancelled) {
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
  resolved = WithExpectedSlots(*std::move(resolved));
  if (cancelled.stop_requested()) return error::CallerLeft();
  ASSIGN_OR_RETURN(const planner::RunRatios run, planner::CompareRun(held.plan, *resolved, profile, ranks));

  v1::ReportRunResponse response;
  response.set_predicted_time_s(run.predicted_s);
  response.set_measured_time_s(run.measured_s);
  response.set_profile_version(profile.version);
  const double predicted_s = PredictedS(environment.store, held, *resolved, profile, run.predicted_s);
  if (!environment.plan_log->KeepRun(request.plan(), RecordOf(request, predicted_s, run, ranks))) return response;
  // A dropless layer ran with the slots of its busiest expert, which nobody reports: its times say nothing of costs.
  const std::vector<bool> drifted = IsDropless(resolved->layer)
                                        ? std::vector<bool>(run.ratios.size())
                                        : environment.drift->Observe(profile, *resolved, run.ratios);
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
