#include "planner/service/fleet/calibrations.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "models/seconds_from_now.h"
#include "models/text.h"
#include "planner/service/fleet/calibration_request.h"
#include "planner/service/fleet/errors.h"
#include "planner/service/samples/fit_together.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostUnended = 64;
constexpr int kMostFailures = 5;         // In a row, without a sample between them.
constexpr double kKeepSpentEveryS = 2;   // What of the budget a kill may give back.
constexpr double kPauseS = 0.2;          // Before the first retry; twice as long before each further one.
constexpr double kFewestBudgetS = 1e-3;  // Less is spent.

bool MayGoWellWithNewRanks(const Status& status) {
  return status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kUnavailable;
}

v1::CalibrationStatus ToProto(const CalibrationJob& job, const v1::StartCalibrationRequest& request) {
  v1::CalibrationStatus status;
  status.set_calibration(static_cast<int>(job.id));
  status.set_cluster(job.cluster);
  status.set_profile_name(request.profile_name());
  v1::CalibrationStatus::State state = v1::CalibrationStatus::WAITING;
  (void)v1::CalibrationStatus::State_Parse(job.newest.state, &state);
  status.set_state(state);
  status.set_detail(job.newest.detail);
  status.set_done(std::min(1.0, job.newest.spent_s / request.budget_s()));
  status.set_samples(job.newest.samples);
  status.set_profile_version(job.newest.profile_version);
  status.set_created_at(job.created_at);
  return status;
}

StatusOr<v1::StartCalibrationRequest> RequestOf(const CalibrationJob& job) {
  return FromJson<v1::StartCalibrationRequest>(job.request, StrCat("calibration ", job.id));
}

}  // namespace

std::string Calibrations::SessionOf(const CalibrationJob& job) { return StrCat("fleet calibration ", job.id); }

Calibrations::~Calibrations() { Stop(); }

void Calibrations::Stop() {
  std::map<std::int64_t, std::unique_ptr<Running>> all;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    for (auto& [id, running] : running_) {
      running->thread.request_stop();
      uses_.hub.Interrupt(running->job.cluster, "stopped with the planner");
    }
  }
  // A thread that was about to start ranks when it was interrupted looks at its token afterwards.
  for (bool left = true; left;) {
    std::unique_ptr<Running> one;
    {
      const std::scoped_lock lock(mutex_);
      left = !running_.empty();
      if (left) one = std::move(running_.begin()->second), running_.erase(running_.begin());
    }
    if (one && one->thread.joinable()) one->thread.join();
  }
}

Status Calibrations::Resume() {
  if (!uses_.driver) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<CalibrationJob> jobs, uses_.store.UnendedCalibrationJobs());
  for (const CalibrationJob& job : jobs) {
    StatusOr<v1::StartCalibrationRequest> request = RequestOf(job);
    if (!request.ok()) {
      // Of a later version, say. The others are none the worse for it.
      uses_.log(StrCat("calibration ", job.id, " cannot go on: ", request.status().message()));
      continue;
    }
    uses_.log(StrCat("calibration ", job.id, " of cluster ", job.cluster, " goes on: ", job.newest.samples,
                     " samples are kept"));
    const std::scoped_lock lock(mutex_);
    if (running_.contains(job.id)) continue;  // It was asked for again by now.
    Launch(job, *std::move(request));
  }
  return OkStatus();
}

StatusOr<std::int64_t> Calibrations::Start(const v1::StartCalibrationRequest& given) {
  if (!uses_.driver) return error::NoDriver();
  RETURN_IF_ERROR(ValidateRequestId(given.request_id()));
  const v1::StartCalibrationRequest request = WithDefaults(given);
  RETURN_IF_ERROR(ValidateCalibrationRequest(request));
  const std::scoped_lock lock(mutex_);
  if (stopping_) return error::ShuttingDown();
  Reap();
  ASSIGN_OR_RETURN(CalibrationJob job,
                   uses_.store.SaveCalibrationJob({.request_id = request.request_id(),
                                                   .cluster = request.cluster(),
                                                   .request = ToJson(request, JsonStyle::kCompact)}));
  const std::int64_t id = job.id;
  if (job.newest.ended || running_.contains(id)) return id;
  if (static_cast<int>(running_.size()) >= kMostUnended) {
    // It is in the store already, so it must not come back to life there.
    const Status full = error::TooManyCalibrations(kMostUnended);
    RETURN_IF_ERROR(uses_.store.SaveCalibrationEvent(id, {.state = "FAILED", .ended = true, .detail = full.message()}));
    return full;
  }
  Launch(std::move(job), request);
  return id;
}

void Calibrations::Reap() {
  std::erase_if(running_, [](auto& entry) { return entry.second->ended; });
}

void Calibrations::Launch(CalibrationJob job, v1::StartCalibrationRequest request) {
  const std::int64_t id = job.id;
  auto running = std::make_unique<Running>();
  running->kept_spent_s = job.newest.spent_s;
  running->job = std::move(job);
  running->request = std::move(request);
  Running& own = *running;
  running_[id] = std::move(running);
  own.thread = std::jthread([this, &own](const std::stop_token& stop) { Run(own, stop); });
}

StatusOr<v1::CalibrationStatus> Calibrations::Get(std::int64_t calibration) const {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto running = running_.find(calibration); running != running_.end()) {
      return ToProto(running->second->job, running->second->request);
    }
  }
  ASSIGN_OR_RETURN(const CalibrationJob job, uses_.store.LoadCalibrationJob(calibration));
  ASSIGN_OR_RETURN(const v1::StartCalibrationRequest request, RequestOf(job));
  return ToProto(job, request);
}

StatusOr<v1::ListCalibrationsResponse> Calibrations::List(const v1::ListCalibrationsRequest& request) const {
  PageRequest page = {.token = request.page_token()};
  if (request.page_size() != 0) page.size = request.page_size();
  ASSIGN_OR_RETURN(const CalibrationJobPage jobs, uses_.store.ListCalibrationJobs(page, request.cluster()));
  v1::ListCalibrationsResponse response;
  for (const CalibrationJob& job : jobs.jobs) {
    ASSIGN_OR_RETURN(*response.add_calibrations(), Get(job.id));
  }
  response.set_next_page_token(jobs.next_token);
  return response;
}

StatusOr<v1::CalibrationStatus> Calibrations::Cancel(std::int64_t calibration) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = running_.find(calibration);
    if (found != running_.end() && !found->second->ended) {
      Running& running = *found->second;
      running.cancelled = true;
      running.thread.request_stop();
      if (running.job.newest.state == "RUNNING") uses_.hub.Interrupt(running.job.cluster, "stopped: it was cancelled");
    }
  }
  return Get(calibration);
}

Calibrations::Ended Calibrations::ended() const {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

void Calibrations::Run(Running& running, const std::stop_token& stop) {
  const StatusOr<int> version = Calibrate(running, stop);
  bool cancelled = false;
  {
    const std::scoped_lock lock(mutex_);
    cancelled = running.cancelled;
  }
  if (version.ok()) {
    Note(running, v1::CalibrationStatus::DONE, "", *version);
  } else if (cancelled) {
    Note(running, v1::CalibrationStatus::CANCELLED, "cancelled");
  } else if (stop.stop_requested()) {
    Note(running, v1::CalibrationStatus::WAITING, "the planner was stopped");
  } else {
    Note(running, v1::CalibrationStatus::FAILED, version.status().message());
    uses_.log(StrCat("calibration ", running.job.id, " of cluster ", running.job.cluster,
                     " failed: ", version.status().message()));
  }
  if (running.job.newest.ended) uses_.ended(running.job);
  const std::scoped_lock lock(mutex_);
  ended_.done += version.ok();
  ended_.cancelled += !version.ok() && cancelled;
  ended_.failed += !version.ok() && !cancelled && !stop.stop_requested();
  running.ended = true;
  turns_.notify_all();
}

StatusOr<int> Calibrations::Calibrate(Running& running, const std::stop_token& stop) {
  RETURN_IF_ERROR(AwaitTurn(running, stop));
  int failures = 0;
  double pause_s = kPauseS;
  for (;;) {
    RETURN_IF_ERROR(AwaitAgents(running, stop));
    const int before = running.job.newest.samples;
    const Status measured = Measure(running, stop);
    if (stop.stop_requested()) return Cancelled("stopped");
    if (measured.ok()) break;
    if (!MayGoWellWithNewRanks(measured)) return measured;
    const bool useful = running.job.newest.samples > before;
    failures = useful ? 1 : failures + 1;
    pause_s = useful ? kPauseS : 2 * pause_s;
    if (failures == kMostFailures) return error::KeepsFailing(failures, measured);
    Note(running, v1::CalibrationStatus::WAITING, measured.message());
    uses_.log(StrCat("calibration ", running.job.id, " of cluster ", running.job.cluster,
                     " was interrupted and goes on: ", measured.message()));
    // What broke one rank may be about to break the next.
    std::unique_lock lock(mutex_);
    turns_.wait_until(lock, stop, SecondsFromNow(pause_s), [] { return false; });
  }
  return running.request.samples_only() ? 0 : Fit(running, stop);
}

Status Calibrations::AwaitTurn(Running& running, const std::stop_token& stop) {
  Note(running, v1::CalibrationStatus::WAITING, "waits for another calibration of the cluster");
  std::unique_lock lock(mutex_);
  const bool first = turns_.wait(lock, stop, [&] {
    return std::ranges::none_of(running_, [&](const auto& entry) {
      const Running& other = *entry.second;
      return !other.ended && other.job.cluster == running.job.cluster && other.job.id < running.job.id;
    });
  });
  return first && !stop.stop_requested() ? OkStatus() : Cancelled("stopped");
}

Status Calibrations::AwaitAgents(Running& running, const std::stop_token& stop) {
  const double limit_s = running.request.wait_limit_s();
  const Clock::time_point until = SecondsFromNow(limit_s);
  for (;;) {
    const int seen = uses_.hub.changes();
    const std::string missing = uses_.hub.Missing(running.job.cluster);
    if (missing.empty()) return OkStatus();
    if (Clock::now() >= until) return error::AgentsMissing(missing, limit_s);
    Note(running, v1::CalibrationStatus::WAITING, missing);
    uses_.hub.AwaitChange(seen, until, stop);
    if (stop.stop_requested()) return Cancelled("stopped");
  }
}

StatusOr<CalibrationWork> Calibrations::WorkOf(Running& running, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(CalibrationWork work, WorkOfRequest(running.request));
  running.session.emplace(
      uses_.store, SessionOf(running.job), running.request.profile_name(),
      [this, cluster = running.job.cluster](const std::string& agent) { return uses_.hub.Holds(cluster, agent); });
  ASSIGN_OR_RETURN(work.taken, running.session->Resume());
  const double spent_s = running.job.newest.spent_s;
  work.budget_s = std::max(kFewestBudgetS, running.request.budget_s() - spent_s);
  {
    const std::scoped_lock lock(mutex_);
    running.job.newest.samples = running.session->kept();
  }
  work.keep = [this, &running](const Cluster& cluster, const Sample& sample) { return Keep(running, cluster, sample); };
  work.progress = [this, &running, spent_s, budget_s = work.budget_s](double done, const std::string& what) {
    Spend(running, spent_s + done * budget_s, what);
  };
  work.log = [this, &running](const std::string& line) {
    uses_.log(StrCat("calibration ", running.job.id, ": ", line));
  };
  work.stop = stop;
  return work;
}

Status Calibrations::Measure(Running& running, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CalibrationWork work, WorkOf(running, stop));
  ASSIGN_OR_RETURN(RelayedRanks ranks, uses_.hub.StartRanks(running.job.cluster));
  running.facts = ranks.provenance;
  Note(running, v1::CalibrationStatus::RUNNING, "starts ranks");
  if (stop.stop_requested()) return Cancelled("stopped");  // It may have been asked for before there were ranks.
  const Status measured = uses_.driver(std::move(ranks), work);
  if (const int set_aside = running.session->set_aside(); set_aside > 0) {
    uses_.log(StrCat("calibration ", running.job.id, " of cluster ", running.job.cluster, ": ", set_aside,
                     " samples were set aside; `moeplan profile rejected` tells why"));
  }
  return measured;
}

Status Calibrations::Keep(Running& running, const Cluster& cluster, const Sample& sample) {
  Sample kept = sample;
  kept.provenance = WithFactsOfHub(std::move(kept.provenance), running.facts);
  RETURN_IF_ERROR(running.session->Keep(cluster, kept));
  const std::scoped_lock lock(mutex_);
  running.job.newest.samples = running.session->kept();
  return OkStatus();
}

StatusOr<int> Calibrations::Fit(const Running& running, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Puts::Turn turn, uses_.puts.TakeTurn(running.request.profile_name(), stop));
  const std::string request = StrCat("Calibration ", running.job.request_id);
  // A planner that was killed between storing the profile and noting it comes here again.
  const StatusOr<Profile> profile =
      FitStored(uses_.store, request, running.request.profile_name(), UnknownPeak::kFastestProduct,
                {.stop = stop, .memory = &uses_.puts.fits()});
  if (!profile.ok() && profile.status().code() == StatusCode::kNotFound) {
    const int set_aside = running.session ? running.session->set_aside() : 0;
    return set_aside > 0 ? error::NothingCounts(set_aside) : error::NothingMeasured();
  }
  RETURN_IF_ERROR(profile.status());
  return profile->version;
}

void Calibrations::Note(Running& running, v1::CalibrationStatus::State state, const std::string& detail,
                        int profile_version) {
  CalibrationEvent event;
  {
    const std::scoped_lock lock(mutex_);
    CalibrationEvent& newest = running.job.newest;
    const bool known = newest.state == v1::CalibrationStatus::State_Name(state) &&
                       newest.spent_s < running.kept_spent_s + kKeepSpentEveryS;
    newest.state = v1::CalibrationStatus::State_Name(state);
    newest.ended = state != v1::CalibrationStatus::WAITING && state != v1::CalibrationStatus::RUNNING;
    newest.detail = detail;
    newest.profile_version = profile_version;
    if (known) return;
    event = newest;
    running.kept_spent_s = newest.spent_s;
  }
  const Status kept = uses_.store.SaveCalibrationEvent(running.job.id, event);
  if (!kept.ok()) uses_.log(StrCat("how far calibration ", running.job.id, " is was not kept: ", kept.message()));
}

void Calibrations::Spend(Running& running, double spent_s, const std::string& what) {
  {
    const std::scoped_lock lock(mutex_);
    running.job.newest.spent_s = spent_s;
  }
  Note(running, v1::CalibrationStatus::RUNNING, what);
}

}  // namespace moeplan::service
