// Those who watch a plan, and the thread that reconsiders what they hold whenever a profile is stored.
//
// Watchers that ask the same are answered by one search, which may take kLongestSearchS. Nothing of a watcher is kept
// but what it asked and what it holds, without timelines and candidates: one that comes back after a planner's restart
// with what it holds misses nothing.
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
#include <utility>
#include <vector>

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
  static constexpr int kMost = 10000;
  static constexpr size_t kMostBytes = size_t{256} << 10;  // Of what one asks and holds.
  static constexpr double kLongestSearchS = 30;

  explicit PlanWatchers(Uses uses);
  ~PlanWatchers() { Join(); }
  PlanWatchers(const PlanWatchers&) = delete;

  // Tells `outlet` what the request asks for until it is removed. kInvalidInput as of ValidateWatch; kUnavailable:
  // there are too many, or the planner shuts down. A request that cannot be planned ends its outlet with that error.
  StatusOr<std::uint64_t> Add(v1::WatchPlanRequest request, std::shared_ptr<PlanOutlet> outlet);
  void Remove(std::uint64_t watcher);
  int count() const;

  // A profile was stored.
  void ProfilesChanged();

  // Ends all outlets with kUnavailable and tells the search that goes on to stop, without waiting for it.
  void Shutdown();
  // The same, and waits.
  void Join();

 private:
  struct Watcher {
    v1::WatchPlanRequest request;  // Brief, with what it holds now; without what is to be planned, which is `question`.
    std::string question;          // A PlanRequest's bytes.
    std::shared_ptr<PlanOutlet> outlet;
    bool due = true;
  };
  using Due = std::vector<std::pair<std::uint64_t, Watcher>>;

  void Run(const std::stop_token& stop);
  void ReconsiderDue(const std::stop_token& stop);
  StatusOr<v1::PlanResponse> Answer(const std::string& question, const std::stop_token& stop);
  void Tell(std::uint64_t id, const Watcher& watcher, const StatusOr<v1::PlanResponse>& fresh);

  const Uses uses_;
  Status told_;  // Of the thread.
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::uint64_t, Watcher> watchers_;  // Guarded by mutex_, as is all below.
  std::uint64_t last_ = 0;
  bool any_due_ = false, any_failed_ = false, shut_ = false;
  std::jthread thread_;  // Last: it uses all of the above.
};

}  // namespace moeplan::service
