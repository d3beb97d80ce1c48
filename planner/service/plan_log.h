// Keeps answered plans, and how they ran, in the store.
//
// It writes through a Store of its own that hardly waits for other writers, so that keeping a plan never holds up the
// calls that read. Every rank of a job asks for the same plan: an answer that was kept lately is not kept again. Jobs
// report every step: of each plan one run a minute is kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "db/store.h"
#include "models/status.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan::service {

// As the store keeps it: the texts are the messages as compact JSON.
PlanRecord RecordOf(const v1::PlanResponse& answer);

class PlanLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kBetweenRuns{1};
  static constexpr int kMostRunsAMinute = 60;  // Of all plans together.

  static StatusOr<PlanLog> Open(
      const std::filesystem::path& path, std::function<Clock::time_point()> now = Clock::now,
      std::function<void(const Status& why)> not_kept = [](const Status&) {});
  PlanLog(PlanLog&& other) noexcept
      : store_(std::move(other.store_)), now_(std::move(other.now_)), not_kept_(std::move(other.not_kept_)) {}

  // Any thread. The same answer has the same id.
  StatusOr<PlanId> Keep(const v1::PlanResponse& answer);

  // Keeps a run of that plan, whose id `run` need not have, if it is time for one; that it could not be kept is told to
  // `not_kept`. Whether the run's request_id is new, as far back as is remembered. Any thread.
  bool KeepRun(const v1::PlanResponse& answer, RunRecord run);

 private:
  PlanLog(Store store, std::function<Clock::time_point()> now, std::function<void(const Status& why)> not_kept)
      : store_(std::move(store)), now_(std::move(now)), not_kept_(std::move(not_kept)) {}
  // Of the record as JSON.
  StatusOr<PlanId> Keep(const PlanRecord& record, size_t digest);
  bool IsNew(const std::string& request_id);
  // Whether a run of the plan with that digest may be kept now; if so, it counts as kept.
  bool IsTime(size_t plan);

  Store store_;
  std::function<Clock::time_point()> now_;
  std::function<void(const Status& why)> not_kept_;
  std::mutex mutex_;                                           // Guards all below; not held while the store is written.
  std::unordered_map<size_t, PlanId> plans_;                   // By the digest of the answer.
  std::unordered_map<size_t, Clock::time_point> last_run_;     // Of each plan within kBetweenRuns.
  std::unordered_set<std::string> requests_, older_requests_;  // Of runs.
};

}  // namespace moeplan::service
