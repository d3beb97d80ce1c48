#include "planner/service/watch/plan_watchers.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "models/text.h"
#include "planner/service/errors.h"
#include "planner/service/guard.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/watch_plan.h"
#include "proto/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

constexpr std::chrono::seconds kRetryAfter{1};

bool MayGoWellInAMoment(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kCancelled;
}

}  // namespace

PlanWatchers::PlanWatchers(Uses uses)
    : uses_(std::move(uses)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

StatusOr<std::uint64_t> PlanWatchers::Add(v1::WatchPlanRequest request, std::shared_ptr<PlanOutlet> outlet) {
  RETURN_IF_ERROR(ValidateWatch(request));
  if (request.has_held()) *request.mutable_held() = BriefOf(request.held());
  if (request.ByteSizeLong() > kMostBytes) {
    return moeplan::error::Mismatch("request and held", StrCat(request.ByteSizeLong(), " bytes"),
                                    StrCat("at most ", kMostBytes));
  }
  std::string question = request.request().SerializeAsString();
  request.clear_request();
  const std::scoped_lock lock(mutex_);
  if (shut_) return error::WatchEnds();
  if (static_cast<int>(watchers_.size()) >= kMost) return FromGrpc(error::TooManyWatchers(kMost));
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
}

void PlanWatchers::Join() {
  Shutdown();
  if (thread_.joinable()) thread_.join();
}

void PlanWatchers::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      const auto due = [this] { return any_due_; };
      if (any_failed_) {
        changed_.wait_for(lock, stop, kRetryAfter, due);
      } else {
        changed_.wait(lock, stop, due);
      }
      any_due_ = any_failed_ = false;
    }
    if (!stop.stop_requested()) ReconsiderDue(stop);
  }
}

void PlanWatchers::ReconsiderDue(const std::stop_token& stop) {
  std::map<std::string, Due> due;  // By what is asked.
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [id, watcher] : watchers_) {
      if (std::exchange(watcher.due, false)) due[watcher.question].emplace_back(id, watcher);
    }
  }
  for (const auto& [question, watchers] : due) {
    const StatusOr<v1::PlanResponse> fresh = Guard([&] { return Answer(question, stop); });
    if (stop.stop_requested()) return;
    // Once for each trouble, not with every try.
    if (fresh.status() != std::exchange(told_, fresh.status()) && !fresh.ok()) {
      uses_.log(StrCat("a watched plan cannot be made: ", fresh.status().message()));
    }
    for (const auto& [id, watcher] : watchers) Tell(id, watcher, fresh);
  }
}

StatusOr<v1::PlanResponse> PlanWatchers::Answer(const std::string& question, const std::stop_token& stop) {
  v1::PlanRequest request;
  if (!request.ParseFromString(question)) return error::Unexpected("a watcher's question cannot be read");
  // One question must not keep all others waiting.
  request.set_time_limit_s(request.has_time_limit_s() ? std::min(request.time_limit_s(), kLongestSearchS)
                                                      : kLongestSearchS);
  return Plan(uses_.environment, request, stop);
}

void PlanWatchers::Tell(std::uint64_t id, const Watcher& watcher, const StatusOr<v1::PlanResponse>& fresh) {
  StatusOr<std::optional<v1::WatchPlanResponse>> told = fresh.status();
  if (fresh.ok()) told = Guard([&] { return Reconsider(uses_.environment, watcher.request, *fresh); });
  if (!told.ok() && MayGoWellInAMoment(told.status())) {
    const std::scoped_lock lock(mutex_);
    const auto found = watchers_.find(id);
    if (found != watchers_.end()) found->second.due = any_failed_ = true;
    return;
  }
  if (!told.ok()) {
    Remove(id);
    watcher.outlet->End(told.status());
    return;
  }
  if (!*told) return;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = watchers_.find(id);
    if (found == watchers_.end()) return;
    *found->second.request.mutable_held() = BriefOf((*told)->plan());
  }
  watcher.outlet->Send(**told);
}

}  // namespace moeplan::service
