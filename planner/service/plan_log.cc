#include "planner/service/plan_log.h"

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "planner/service/handlers/held_plan.h"
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

StatusOr<PlanLog> PlanLog::Open(const std::filesystem::path& path, std::function<Clock::time_point()> now,
                                std::function<void(const Status& why)> not_kept) {
  ASSIGN_OR_RETURN(Store store, Store::Open(path, {.busy_timeout = kBusyTimeout}));
  return PlanLog(std::move(store), std::move(now), std::move(not_kept));
}

StatusOr<PlanId> PlanLog::Keep(const v1::PlanResponse& answer) {
  const PlanRecord record = RecordOf(answer);
  return Keep(record, std::hash<std::string>()(record.answer));
}

StatusOr<PlanId> PlanLog::Keep(const PlanRecord& record, size_t digest) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto known = plans_.find(digest); known != plans_.end()) return known->second;
  }
  ASSIGN_OR_RETURN(const PlanId id, store_.SavePlan(record));
  const std::scoped_lock lock(mutex_);
  if (plans_.size() >= kRemembered) plans_.clear();
  return plans_[digest] = id;
}

bool PlanLog::KeepRun(const v1::PlanResponse& answer, RunRecord run) {
  if (!IsNew(run.request_id)) return false;
  // Whatever view the job has of it, it is one plan.
  const PlanRecord record = RecordOf(BriefOf(answer));
  const size_t digest = std::hash<std::string>()(record.answer);
  if (!IsTime(digest)) return true;
  const StatusOr<PlanId> plan = Keep(record, digest);
  Status kept = plan.status();
  if (plan.ok()) {
    run.plan = *plan;
    kept = store_.SaveRun(run).status();
  }
  if (!kept.ok()) not_kept_(kept);
  return true;
}

bool PlanLog::IsNew(const std::string& request_id) {
  const std::scoped_lock lock(mutex_);
  if (older_requests_.contains(request_id)) return false;
  if (!requests_.insert(request_id).second) return false;
  if (requests_.size() >= kRemembered) {
    older_requests_ = std::move(requests_);
    requests_.clear();
  }
  return true;
}

bool PlanLog::IsTime(size_t plan) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = now_();
  std::erase_if(last_run_, [&](const auto& one) { return now >= one.second + kBetweenRuns; });
  return last_run_.size() < kMostRunsAMinute && last_run_.emplace(plan, now).second;
}

}  // namespace moeplan::service
