// What a PlanWatch tells, for whoever waits for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "models/status.h"
#include "planner/client/plan_watch.h"

namespace moeplan {

class Told {
 public:
  // Has a watch with these options tell it; it must outlive the watch.
  void Listen(client::PlanWatchOptions& options) {
    options.changed = [this](const v1::WatchPlanResponse& response) {
      const std::scoped_lock lock(mutex_);
      all_.push_back(response);
      changed_.notify_all();
    };
    options.away = [this](const Status& why) {
      const std::scoped_lock lock(mutex_);
      away_ = why;
      changed_.notify_all();
    };
  }

  // The next plan that was told. Absent: nothing came in time.
  std::optional<v1::WatchPlanResponse> Next(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return !all_.empty(); })) return std::nullopt;
    v1::WatchPlanResponse first = all_.front();
    all_.pop_front();
    return first;
  }

  // Why the planner last was away. OK: it was not, until now.
  Status AwaitAway(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return !away_.ok(); });
    return away_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::WatchPlanResponse> all_;  // Guarded by mutex_, as is the next.
  Status away_;
};

}  // namespace moeplan
