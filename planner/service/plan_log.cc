#include "planner/service/plan_log.h"

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "proto/json.h"

namespace moeplan::service {
namespace {

constexpr size_t kRemembered = 4096;
constexpr std::chrono::milliseconds kBusyTimeout{100};

}  // namespace

PlanRecord RecordOf(const v1::PlanResponse& answer) {
  return {.profile_name = answer.profile_name(),
          .profile_version = answer.profile_version(),
          .workload = ToJson(answer.workload(), JsonStyle::kCompact),
          .answer = ToJson(answer, JsonStyle::kCompact)};
}

StatusOr<PlanLog> PlanLog::Open(const std::filesystem::path& path, std::function<Clock::time_point()> now) {
  ASSIGN_OR_RETURN(Store store, Store::Open(path, {.busy_timeout = kBusyTimeout}));
  return PlanLog(std::move(store), std::move(now));
}

StatusOr<PlanId> PlanLog::Keep(const v1::PlanResponse& answer) {
  const PlanRecord record = RecordOf(answer);
  const size_t digest = std::hash<std::string>()(record.answer);
  const std::scoped_lock lock(mutex_);
  if (const auto known = recent_.find(digest); known != recent_.end()) return known->second.id;
  if (recent_.size() >= kRemembered) recent_.clear();
  ASSIGN_OR_RETURN(const PlanId id, store_.SavePlan(record));
  recent_[digest].id = id;
  return id;
}

StatusOr<bool> PlanLog::KeepRun(const v1::PlanResponse& answer, RunRecord run) {
  ASSIGN_OR_RETURN(run.plan, Keep(answer));
  const size_t digest = std::hash<std::string>()(RecordOf(answer).answer);
  const std::scoped_lock lock(mutex_);
  if (requests_.contains(run.request_id)) return false;
  Kept& plan = recent_[digest];
  const Clock::time_point now = now_();
  if (plan.last_run == Clock::time_point() || now >= plan.last_run + kBetweenRuns) {
    RETURN_IF_ERROR(store_.SaveRun(run).status());
    plan = {.id = run.plan, .last_run = now};
  }
  if (requests_.size() >= kRemembered) requests_.clear();
  requests_.insert(std::move(run.request_id));
  return true;
}

}  // namespace moeplan::service
