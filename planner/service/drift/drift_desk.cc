#include "planner/service/drift/drift_desk.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "models/time_text.h"
#include "planner/service/calls/request_id.h"
#include "planner/service/fleet/errors.h"
#include "proto/convert/samples.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostKept = 1000;
constexpr double kBudgetS = 600;      // Of a calibration, which ends earlier when its estimates are tight.
constexpr double kWaitLimitS = 3600;  // For agents that are missing.
constexpr std::string_view kRequestPrefix = "remeasure ";

std::string Times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f times", ratio);
  return text;
}

// "ALL_TO_ALL groupSize 4 ranksPerNode 2 takes 1.50 times as long as foretold".
std::string Sentence(const MovedCost& moved) {
  return StrCat(Describe(moved.key), " takes ", Times(moved.ratio), " as long as foretold");
}

bool MeasuresAgain(const CalibrationJob& job) { return job.request_id.starts_with(kRequestPrefix); }

// Under which the store remembers what a calibration that measured again came to.
std::string JudgementOf(const CalibrationJob& job) { return StrCat("Remeasured ", job.request_id); }

}  // namespace

std::vector<bool> DriftDesk::Observe(const Profile& profile, const Workload& workload,
                                     const std::vector<CostRatio>& ratios) {
  std::vector<bool> drifted(ratios.size());
  std::vector<std::pair<CostKey, LevelShift>> shifts;
  {
    const std::scoped_lock lock(mutex_);
    Watched& watched = watched_[profile.name];
    if (profile.version < watched.version) return drifted;  // It began before the new version was stored.
    if (profile.version > watched.version) watched = {.version = profile.version};
    for (size_t i = 0; i < ratios.size(); ++i) {
      const std::optional<LevelShift> shift = watched.tests[ratios[i].key].Observe(ratios[i].log_ratio);
      if (!shift) continue;
      drifted[i] = true;
      shifts.emplace_back(ratios[i].key, *shift);
    }
  }
  for (const auto& [key, shift] : shifts) Find(profile, workload, key, shift);
  return drifted;
}

void DriftDesk::Find(const Profile& profile, const Workload& workload, const CostKey& key, const LevelShift& shift) {
  Found found = {.key = key, .log_ratio = shift.log_ratio};
  v1::Drift& drift = found.drift;
  drift.set_profile_name(profile.name);
  drift.set_profile_version(profile.version);
  drift.set_cost(Describe(key));
  drift.set_ratio(std::exp(shift.log_ratio));
  drift.set_runs(shift.observations);
  drift.set_found_at(Rfc3339(std::chrono::system_clock::now()));
  const Resource resource = ResourceOf(key);

  const std::scoped_lock lock(mutex_);
  std::int64_t& measuring = measuring_[{profile.name, resource}];
  if (measuring == 0) {
    const StatusOr<std::int64_t> started = MeasureAgain(profile, workload, resource);
    if (started.ok()) {
      measuring = *started;
    } else {
      drift.set_state(v1::Drift::FAILED);
      drift.set_detail(started.status().message());
    }
  }
  if (measuring != 0) {
    drift.set_state(v1::Drift::MEASURING);
    drift.set_calibration(static_cast<int>(measuring));
  }
  uses_.log(StrCat("drift of profile ", profile.name, " version ", profile.version, ": ", drift.cost(), " takes ",
                   Times(drift.ratio()), " as long as foretold in ", drift.runs(), " runs; ",
                   measuring != 0 ? StrCat("calibration ", measuring, " measures again what lies on ", Name(resource))
                                  : StrCat("it cannot be measured again: ", drift.detail())));
  found.number = ++last_number_;
  ++found_of_profile_[profile.name];
  found_.push_back(std::move(found));
  if (found_.size() > kMostKept) found_.pop_front();
}

StatusOr<std::int64_t> DriftDesk::MeasureAgain(const Profile& profile, const Workload& workload, Resource resource) {
  v1::StartCalibrationRequest request;
  request.set_request_id(StrCat(kRequestPrefix, RequestId("")));
  ASSIGN_OR_RETURN(*request.mutable_cluster(), ClusterOf(profile.name));
  request.set_profile_name(profile.name);
  request.set_budget_s(kBudgetS);
  request.set_wait_limit_s(kWaitLimitS);
  request.set_samples_only(true);
  *request.mutable_grid() = ToProto(std::vector<Workload>{workload});
  for (const Sample& operation : OperationsOf(profile, resource, workload)) {
    *request.add_operations() = ToProto(operation);
  }
  return uses_.calibrations.Start(request);
}

// The one that the profile was last measured on.
StatusOr<std::string> DriftDesk::ClusterOf(const std::string& profile_name) const {
  PageRequest page = {.size = 1000};
  do {
    ASSIGN_OR_RETURN(const CalibrationJobPage jobs, uses_.store.ListCalibrationJobs(page));
    for (const CalibrationJob& job : jobs.jobs) {
      const auto request = FromJson<v1::StartCalibrationRequest>(job.request, "request");
      if (request.ok() && request->profile_name() == profile_name) return job.cluster;
    }
    page.token = jobs.next_token;
  } while (!page.token.empty());
  return error::NoClusterOf(profile_name);
}

void DriftDesk::Ended(const CalibrationJob& job) {
  if (!MeasuresAgain(job)) return;
  StatusOr<Judged> judged = Cancelled(job.newest.detail);
  if (job.newest.state == v1::CalibrationStatus::State_Name(v1::CalibrationStatus::DONE)) judged = Judge(job);

  const std::scoped_lock lock(mutex_);
  std::erase_if(measuring_, [&](const auto& one) { return one.second == job.id; });
  for (Found& found : found_) {
    v1::Drift& drift = found.drift;
    if (drift.calibration() != job.id || drift.state() != v1::Drift::MEASURING) continue;
    if (!judged.ok()) {
      drift.set_state(v1::Drift::FAILED);
      drift.set_detail(judged.status().message());
      continue;
    }
    const auto moved = std::ranges::find(judged->moved, found.key, &MovedCost::key);
    if (moved != judged->moved.end()) {
      drift.set_state(v1::Drift::RENEWED);
      drift.set_renewed_version(judged->version);
      drift.set_detail(Sentence(*moved));
      continue;
    }
    drift.set_state(v1::Drift::UNCONFIRMED);
    drift.set_detail("measured again, it takes what was foretold: runs see something else");
    Watched& watched = watched_[drift.profile_name()];
    if (watched.version == drift.profile_version()) watched.tests[found.key].MoveTo(found.log_ratio);
  }
}

StatusOr<DriftDesk::Judged> DriftDesk::Judge(const CalibrationJob& job) {
  ASSIGN_OR_RETURN(const auto request, FromJson<v1::StartCalibrationRequest>(job.request, "request"));
  const std::string& name = request.profile_name();
  const std::scoped_lock in_turn(uses_.puts.in_turn);
  ASSIGN_OR_RETURN(const std::optional<ProfileVersion> before, uses_.store.VersionOfRequest(JudgementOf(job)));
  if (before) return Judged{.version = before->version};
  ASSIGN_OR_RETURN(const Profile profile, uses_.store.LoadProfile({.name = name}));
  ASSIGN_OR_RETURN(const std::vector<Calibration> found,
                   uses_.store.SamplesOf({.calibration = Calibrations::SessionOf(job)}));
  ASSIGN_OR_RETURN(Remeasured renewed, Renew(profile, found.front().samples.samples));
  if (renewed.moved.empty()) {
    RETURN_IF_ERROR(uses_.store.RememberRequest(
        JudgementOf(job), {.name = name, .version = profile.version, .created_at = profile.created_at}));
    uses_.log(StrCat("calibration ", job.id, " measured again what drifted in profile ", name, ": it is as foretold"));
    return Judged{};
  }
  // Before the version that no longer knows them, so that whoever is killed between the two does it again.
  std::vector<CostKey> keys;
  for (const MovedCost& moved : renewed.moved) keys.push_back(moved.key);
  RETURN_IF_ERROR(uses_.store.RetireSamples(name, keys, Calibrations::SessionOf(job)));
  ASSIGN_OR_RETURN(const ProfileVersion version, SaveOnce(uses_.store, JudgementOf(job), renewed.profile));
  uses_.log(StrCat("profile ", name, " version ", version.version, ": calibration ", job.id, " renewed ", keys.size(),
                   " costs; ", Sentence(renewed.moved.front())));
  return Judged{.version = version.version, .moved = std::move(renewed.moved)};
}

Status DriftDesk::Resume() {
  // Newest first; what is older was judged by whoever measured later.
  ASSIGN_OR_RETURN(const CalibrationJobPage jobs, uses_.store.ListCalibrationJobs({.size = 100}));
  for (auto job = jobs.jobs.rbegin(); job != jobs.jobs.rend(); ++job) {
    if (!MeasuresAgain(*job)) continue;
    if (job->newest.ended) {
      Ended(*job);
      continue;
    }
    const auto request = FromJson<v1::StartCalibrationRequest>(job->request, "request");
    if (!request.ok() || request->operations().empty()) continue;
    const auto operation = SampleFromProto(request->operations(0), "operations[0]");
    if (!operation.ok()) continue;
    const std::scoped_lock lock(mutex_);
    measuring_[{request->profile_name(), ResourceOf(operation->key)}] = job->id;
  }
  return OkStatus();
}

StatusOr<v1::ListDriftsResponse> DriftDesk::List(const v1::ListDriftsRequest& request) const {
  constexpr int kLargestPage = 1000, kDefaultPage = 100;
  const int size = request.page_size() == 0 ? kDefaultPage : request.page_size();
  if (size < 1 || size > kLargestPage) {
    return moeplan::error::Mismatch("pageSize", StrCat(size), StrCat("1 to ", kLargestPage));
  }
  std::int64_t below = 0;
  const std::string& token = request.page_token();
  if (!token.empty()) {
    const auto parsed = std::from_chars(token.data(), token.data() + token.size(), below);
    if (parsed.ec != std::errc() || parsed.ptr != token.data() + token.size()) {
      return moeplan::error::Mismatch("pageToken", token, "the nextPageToken of the page before");
    }
  }
  v1::ListDriftsResponse response;
  std::int64_t last = 0;
  const std::scoped_lock lock(mutex_);
  for (auto found = found_.rbegin(); found != found_.rend(); ++found) {
    if (!token.empty() && found->number >= below) continue;
    if (!request.profile_name().empty() && found->drift.profile_name() != request.profile_name()) continue;
    if (response.drifts_size() == size) {
      response.set_next_page_token(std::to_string(last));
      break;
    }
    *response.add_drifts() = found->drift;
    last = found->number;
  }
  return response;
}

std::map<std::string, DriftDesk::Counts> DriftDesk::counts() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, Counts> counts;
  for (const auto& [name, found] : found_of_profile_) counts[name].found = found;
  std::set<std::pair<std::string, CostKey>> seen;
  for (auto found = found_.rbegin(); found != found_.rend(); ++found) {
    const bool newest = seen.emplace(found->drift.profile_name(), found->key).second;
    const auto watched = watched_.find(found->drift.profile_name());
    const bool current = watched != watched_.end() && watched->second.version == found->drift.profile_version();
    if (newest && current && found->drift.state() != v1::Drift::RENEWED) ++counts[found->drift.profile_name()].off;
  }
  return counts;
}

}  // namespace moeplan::service
