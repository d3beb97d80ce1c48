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

  static StatusOr<PlanLog> Open(const std::filesystem::path& path, std::function<Clock::time_point()> now = Clock::now);
  PlanLog(PlanLog&& other) noexcept : store_(std::move(other.store_)), now_(std::move(other.now_)) {}

  // Any thread. The same answer has the same id.
  StatusOr<PlanId> Keep(const v1::PlanResponse& answer);

  // Keeps a run of that plan, whose id `run` need not have, if it is time for one. Whether the run's request_id is new,
  // as far back as is remembered. Any thread.
  StatusOr<bool> KeepRun(const v1::PlanResponse& answer, RunRecord run);

 private:
  PlanLog(Store store, std::function<Clock::time_point()> now) : store_(std::move(store)), now_(std::move(now)) {}

  Store store_;
  std::function<Clock::time_point()> now_;
  std::mutex mutex_;  // Guards all below.
  struct Kept {
    PlanId id;
    Clock::time_point last_run;
  };
  std::unordered_map<size_t, Kept> recent_;   // By the digest of the answer.
  std::unordered_set<std::string> requests_;  // Of runs.
};

}  // namespace moeplan::service
