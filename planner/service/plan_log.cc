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

StatusOr<PlanLog> PlanLog::Open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(Store store, Store::Open(path, {.busy_timeout = kBusyTimeout}));
  return PlanLog(std::move(store));
}

Status PlanLog::Keep(const v1::PlanResponse& answer) {
  const PlanRecord record = RecordOf(answer);
  const size_t digest = std::hash<std::string>()(record.answer);
  if (!Remember(digest)) return OkStatus();
  const StatusOr<PlanId> saved = store_.SavePlan(record);
  if (!saved.ok()) Forget(digest);
  return saved.status();
}

bool PlanLog::Remember(size_t digest) {
  const std::scoped_lock lock(mutex_);
  if (recent_.size() >= kRemembered) recent_.clear();
  return recent_.insert(digest).second;
}

void PlanLog::Forget(size_t digest) {
  const std::scoped_lock lock(mutex_);
  recent_.erase(digest);
}

}  // namespace moeplan::service
