#include "planner/service/watch/plan_watchers.h"

#include <optional>
#include <utility>
#include <vector>

#include "models/text.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/watch_plan.h"

namespace moeplan::service {

PlanWatchers::PlanWatchers(Uses uses)
    : uses_(std::move(uses)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

StatusOr<std::uint64_t> PlanWatchers::Add(v1::WatchPlanRequest request, std::shared_ptr<PlanOutlet> outlet) {
  RETURN_IF_ERROR(ValidateWatch(request));
  std::string question = request.request().SerializeAsString();
  const std::scoped_lock lock(mutex_);
  if (shut_) return error::WatchEnds();
  if (watchers_.size() >= kMost) return error::TooManyWatchers(kMost);
  watchers_[++last_] = {.request = std::move(request), .question = std::move(question), .outlet = std::move(outlet)};
  any_due_ = true;
  changed_.notify_all();
  return last_;
}

void PlanWatchers::Remove(std::uint64_t watcher) {
  const std::scoped_lock lock(mutex_);
  watchers_.erase(watcher);
}

int PlanWatchers::count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(watchers_.size());
}

void PlanWatchers::ProfilesChanged() {
  const std::scoped_lock lock(mutex_);
  for (auto& [id, watcher] : watchers_) watcher.due = true;
  any_due_ = !watchers_.empty();
  changed_.notify_all();
}

void PlanWatchers::Shutdown() {
  std::map<std::uint64_t, Watcher> all;
  {
    const std::scoped_lock lock(mutex_);
    shut_ = true;
    all.swap(watchers_);
  }
  thread_.request_stop();
  for (const auto& [id, watcher] : all) watcher.outlet->End(error::WatchEnds());
  if (thread_.joinable()) thread_.join();
}

void PlanWatchers::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return any_due_; })) return;
      any_due_ = false;
    }
    ReconsiderDue(stop);
  }
}

void PlanWatchers::ReconsiderDue(const std::stop_token& stop) {
  std::map<std::string, std::vector<std::pair<std::uint64_t, Watcher>>> due;  // By what is asked.
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [id, watcher] : watchers_) {
      if (std::exchange(watcher.due, false)) due[watcher.question].emplace_back(id, watcher);
    }
  }
  for (const auto& [question, watchers] : due) {
    const StatusOr<v1::PlanResponse> fresh = Plan(uses_.environment, watchers.front().second.request.request(), stop);
    if (stop.stop_requested()) return;
    for (const auto& [id, watcher] : watchers) Tell(id, watcher, fresh);
  }
}

void PlanWatchers::Tell(std::uint64_t id, const Watcher& watcher, const StatusOr<v1::PlanResponse>& fresh) {
  StatusOr<std::optional<v1::WatchPlanResponse>> told = fresh.status();
  if (fresh.ok()) told = Reconsider(uses_.environment, watcher.request, *fresh);
  if (!told.ok()) {
    // Whoever holds a plan goes on with it.
    if (watcher.request.has_held()) {
      uses_.log(StrCat("a watched plan cannot be reconsidered: ", told.status().message()));
      return;
    }
    Remove(id);
    watcher.outlet->End(told.status());
    return;
  }
  if (!*told) return;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = watchers_.find(id);
    if (found == watchers_.end()) return;
    *found->second.request.mutable_held() = (*told)->plan();
  }
  watcher.outlet->Send(**told);
}

}  // namespace moeplan::service
