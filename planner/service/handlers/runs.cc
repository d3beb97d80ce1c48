#include "planner/service/handlers/runs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "models/text.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "planner/service/handlers/page_of.h"
#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

// What is kept of a plan, as far as it can be read.
struct KeptAnswer {
  std::string workload_name;
  std::optional<v1::PlanResponse> answer;
};

KeptAnswer Read(const PlanRecord& plan) {
  KeptAnswer kept;
  if (const auto workload = FromJson<v1::Workload>(plan.workload, "workload"); workload.ok())
    kept.workload_name = workload->name();
  if (auto answer = FromJson<v1::PlanResponse>(plan.answer, "answer"); answer.ok()) kept.answer = *std::move(answer);
  return kept;
}

v1::Plan SummaryOf(const v1::Plan& plan) {
  v1::Plan summary = plan;
  summary.clear_order();
  summary.clear_timeline();
  return summary;
}

template <typename Matches>
const v1::Plan* FindPlan(const KeptAnswer& kept, const Matches& matches) {
  if (!kept.answer) return nullptr;
  if (kept.answer->has_best() && matches(kept.answer->best())) return &kept.answer->best();
  const auto& candidates = kept.answer->candidates();
  const auto found = std::ranges::find_if(candidates, matches);
  return found == candidates.end() ? nullptr : &*found;
}

bool SameKnobs(const v1::MeasuredCandidate& measured, const v1::Plan& plan) {
  return plan.schedule() == measured.schedule() && plan.chunks() == measured.chunks() &&
         plan.partition_degree() == measured.partition_degree() && plan.all_to_all() == measured.all_to_all() &&
         plan.dispatch_codec() == measured.dispatch_codec() && plan.combine_codec() == measured.combine_codec() &&
         plan.overlapped_gather() == measured.overlapped_gather() &&
         std::ranges::equal(plan.chunk_shares(), measured.chunk_shares()) &&
         plan.communication_ctas() == measured.communication_ctas();
}

v1::Plan PlanOf(const v1::MeasuredCandidate& measured) {
  v1::Plan plan;
  plan.set_schedule(measured.schedule());
  plan.set_chunks(measured.chunks());
  plan.set_partition_degree(measured.partition_degree());
  plan.set_all_to_all(measured.all_to_all());
  plan.set_dispatch_codec(measured.dispatch_codec());
  plan.set_combine_codec(measured.combine_codec());
  plan.set_overlapped_gather(measured.overlapped_gather());
  *plan.mutable_chunk_shares() = measured.chunk_shares();
  plan.set_communication_ctas(measured.communication_ctas());
  plan.set_predicted_time_s(measured.predicted_time_s());
  plan.set_low_s(measured.low_s());
  plan.set_high_s(measured.high_s());
  return plan;
}

// Where no more can be read.
v1::Plan ScheduleAlone(const std::string& schedule) {
  v1::Plan plan;
  if (const auto family = EnumNumber(*v1::Schedule::Family_descriptor(), schedule))
    plan.set_schedule(static_cast<v1::Schedule::Family>(*family));
  return plan;
}

// A RunReport says a schedule and what ranks timed, a MeasuredCandidate which knobs ran.
struct KeptReport {
  std::optional<v1::RunReport> run;
  std::optional<v1::MeasuredCandidate> candidate;
};

KeptReport ReadReport(const std::string& text) {
  KeptReport report;
  if (auto run = FromJson<v1::RunReport>(text, "report"); run.ok()) {
    report.run = *std::move(run);
  } else if (auto candidate = FromJson<v1::MeasuredCandidate>(text, "report"); candidate.ok()) {
    report.candidate = *std::move(candidate);
  }
  return report;
}

v1::Plan PlanThatRan(const RunRecord& run, const KeptReport& report, const KeptAnswer& kept) {
  if (report.candidate) {
    const v1::Plan* plan = FindPlan(kept, [&](const v1::Plan& one) { return SameKnobs(*report.candidate, one); });
    return plan != nullptr ? SummaryOf(*plan) : PlanOf(*report.candidate);
  }
  const v1::Plan schedule = ScheduleAlone(run.schedule);
  if (!report.run) return schedule;
  const v1::Plan* plan = FindPlan(kept, [&](const v1::Plan& one) { return one.schedule() == schedule.schedule(); });
  return plan != nullptr ? SummaryOf(*plan) : schedule;
}

v1::Run ToProto(RunId id, const RunRecord& run, const PlanRecord& plan, const KeptReport& report,
                const KeptAnswer& kept) {
  v1::Run message;
  message.set_run(static_cast<int>(id.value));
  message.set_created_at(run.created_at);
  message.set_profile_name(plan.profile_name);
  message.set_profile_version(plan.profile_version);
  message.set_workload_name(kept.workload_name);
  *message.mutable_plan() = PlanThatRan(run, report, kept);
  message.set_predicted_time_s(run.predicted_time_s);
  message.set_measured_time_s(run.measured_time_s);
  message.set_request_id(run.request_id);
  return message;
}

}  // namespace

StatusOr<v1::ListRunsResponse> ListRuns(const Environment& environment, const v1::ListRunsRequest& request,
                                        std::stop_token /*cancelled*/) {
  std::optional<std::string> name;
  if (!request.profile_name().empty()) name = request.profile_name();
  ASSIGN_OR_RETURN(const RunPage page, environment.listings().ListRuns(PageOf(request), name));
  std::map<std::int64_t, KeptAnswer> answers;  // Of one plan there may be many runs.
  for (const auto& [id, plan] : page.plans) answers.emplace(id, Read(plan));
  v1::ListRunsResponse response;
  for (const RunPage::Row& row : page.runs) {
    const std::int64_t plan = row.run.plan.value;
    *response.add_runs() = ToProto(row.id, row.run, page.plans.at(plan), ReadReport(row.run.report), answers.at(plan));
  }
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<v1::GetRunResponse> GetRun(const Environment& environment, const v1::GetRunRequest& request,
                                    std::stop_token /*cancelled*/) {
  if (request.run() < 1) return moeplan::error::Mismatch("run", StrCat(request.run()), "at least 1");
  ASSIGN_OR_RETURN(const StoredRun stored, environment.listings().LoadRun({request.run()}));
  KeptAnswer kept = Read(stored.plan);
  const KeptReport report = ReadReport(stored.run.report);
  v1::GetRunResponse response;
  *response.mutable_run() = ToProto(stored.id, stored.run, stored.plan, report, kept);
  if (kept.answer) *response.mutable_plan() = *std::move(kept.answer);
  if (report.run) *response.mutable_ranks() = report.run->ranks();
  return response;
}

}  // namespace moeplan::service
