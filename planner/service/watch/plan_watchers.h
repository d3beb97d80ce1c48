// Those who watch a plan, and the thread that reconsiders what they hold whenever a profile is stored.
//
// Watchers that ask the same are answered by one search. Nothing of a watcher is kept but what it asked and what it
// holds: one that comes back after a planner's restart with what it holds misses nothing.
//
// Threads: any. Outlets are called on the thread of the watchers, without a lock held.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The way to one watcher.
class PlanOutlet {
 public:
  virtual ~PlanOutlet() = default;
  // Takes the place of what was not sent yet.
  virtual void Send(const v1::WatchPlanResponse& response) = 0;
  virtual void End(const Status& why) = 0;
};

class PlanWatchers {
 public:
  struct Uses {
    const Environment& environment;
    std::function<void(std::string_view line)> log = [](std::string_view) {};
  };
  static constexpr size_t kMost = 10000;

  explicit PlanWatchers(Uses uses);
  ~PlanWatchers() { Shutdown(); }
  PlanWatchers(const PlanWatchers&) = delete;

  // Tells `outlet` what the request asks for until it is removed. kInvalidInput as of ValidateWatch; kUnavailable:
  // there are too many, or the planner shuts down. A request that cannot be planned ends its outlet with that error.
  StatusOr<std::uint64_t> Add(v1::WatchPlanRequest request, std::shared_ptr<PlanOutlet> outlet);
  void Remove(std::uint64_t watcher);
  int count() const;

  // A profile was stored.
  void ProfilesChanged();

  // Ends all outlets with kUnavailable.
  void Shutdown();

 private:
  struct Watcher {
    v1::WatchPlanRequest request;  // With what it holds now.
    std::string question;          // The bytes of what is to be planned.
    std::shared_ptr<PlanOutlet> outlet;
    bool due = true;
  };

  void Run(const std::stop_token& stop);
  void ReconsiderDue(const std::stop_token& stop);
  void Tell(std::uint64_t id, const Watcher& watcher, const StatusOr<v1::PlanResponse>& fresh);

  const Uses uses_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::uint64_t, Watcher> watchers_;  // Guarded by mutex_, as is all below.
  std::uint64_t last_ = 0;
  bool any_due_ = false, shut_ = false;
  std::jthread thread_;  // Last: it uses all of the above.
};

}  // namespace moeplan::service
