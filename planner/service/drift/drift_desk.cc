#include "planner/service/drift/drift_desk.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "models/cost/operation.h"
#include "models/text.h"
#include "models/time_text.h"
#include "planner/service/calls/request_id.h"
#include "planner/service/fleet/calibration_request.h"
#include "planner/service/fleet/errors.h"
#include "planner/service/guard.h"
#include "proto/convert/samples.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostKept = 1000;
constexpr double kBudgetS = 600;      // Of a calibration, which ends earlier when its estimates are tight.
constexpr double kWaitLimitS = 3600;  // For agents that are missing.
constexpr std::chrono::hours kRest{1};

std::string Times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f times", ratio);
  return text;
}

// "ALL_TO_ALL groupSize 4 ranksPerNode 2 takes 1.50 times as long as predicted".
std::string Sentence(const planner::MovedCost& moved) {
  return StrCat(Describe(moved.key), " takes ", Times(moved.ratio), " as long as predicted");
}

bool MeasuresAgain(const CalibrationJob& job) { return job.request_id.starts_with(kRemeasurePrefix); }

// The version of the profile that had drifted.
int VersionOf(const CalibrationJob& job) { return std::atoi(job.request_id.c_str() + kRemeasurePrefix.size()); }

// Whether both versions say the same of the cost.
bool SameEntry(const CostKey& key, const Profile& one, const Profile& other) {
  const auto model_in = [&](const Profile& profile) {
    const auto* collective = std::get_if<CollectiveKey>(&key);
    return collective != nullptr ? FindContended(profile, *collective)
                                 : FindContended(profile, std::get<KernelKey>(key));
  };
  const CostModel *in_one = model_in(one), *in_other = model_in(other);
  return one.cluster == other.cluster && in_one != nullptr && in_other != nullptr && *in_one == *in_other;
}

bool IsDone(const CalibrationJob& job) {
  return job.newest.state == v1::CalibrationStatus::State_Name(v1::CalibrationStatus::DONE);
}

// Under which the store remembers what a calibration that measured again came to.
std::string JudgementOf(const CalibrationJob& job) { return StrCat("Remeasured ", job.request_id); }

StatusOr<v1::StartCalibrationRequest> RequestOf(const CalibrationJob& job) {
  return FromJson<v1::StartCalibrationRequest>(job.request, StrCat("calibration ", job.id));
}

}  // namespace

bool DriftDesk::IsResting(const ResourceOfProfile& resource, Clock::time_point now) const {
  if (measuring_.contains(resource)) return true;
  const auto rest = rests_until_.find(resource);
  return rest != rests_until_.end() && now < rest->second;
}

std::vector<bool> DriftDesk::Observe(const Profile& profile, const Workload& workload,
                                     const std::vector<planner::CostRatio>& ratios) {
  const Clock::time_point now = uses_.options.now();
  const std::chrono::duration<double> between(uses_.options.between_reports_s);
  std::vector<bool> drifted(ratios.size());
  std::map<planner::Resource, std::vector<Shifted>> shifted;
  {
    const std::scoped_lock lock(mutex_);
    WatchedProfile& watched = watched_[profile.name];
    if (profile.version < watched.version) return drifted;  // It began before the new version was stored.
    if (profile.version > watched.version) Begin(profile.name, profile.version);
    for (size_t i = 0; i < ratios.size(); ++i) {
      const planner::Resource resource = planner::ResourceOf(ratios[i].key);
      if (!std::isfinite(ratios[i].log_ratio) || IsResting({profile.name, resource}, now)) continue;
      Watched& cost = watched.costs[ratios[i].key];
      if (cost.last && now < *cost.last + between) continue;
      cost.last = now;
      const std::optional<planner::LevelShift> shift = cost.test.Observe(ratios[i].log_ratio);
      if (!shift) continue;
      if (std::abs(shift->log_ratio) <= std::log(planner::LevelTest::kBandRatio)) {
        Return(profile.name, ratios[i].key, cost.test);
        continue;
      }
      drifted[i] = true;
      shifted[resource].push_back({ratios[i].key, *shift});
    }
    for (const auto& [resource, some] : shifted) measuring_[{profile.name, resource}] = 0;
  }
  for (const auto& [resource, some] : shifted) MeasureAgain(profile, workload, some);
  return drifted;
}

void DriftDesk::MeasureAgain(const Profile& profile, const Workload& workload, const std::vector<Shifted>& shifted) {
  const CostKey& first = shifted.front().key;
  const std::scoped_lock starting(starting_);
  const StatusOr<std::int64_t> calibration = Guard([&] { return StartCalibration(profile, workload, first); });
  const std::scoped_lock lock(mutex_);
  const ResourceOfProfile resource = {profile.name, planner::ResourceOf(first)};
  if (calibration.ok()) {
    measuring_[resource] = *calibration;
  } else {
    measuring_.erase(resource);
    rests_until_[resource] = uses_.options.now() + kRest;
  }
  for (const Shifted& one : shifted) Note(profile, one, calibration);
}

void DriftDesk::Note(const Profile& profile, const Shifted& shifted, const StatusOr<std::int64_t>& calibration) {
  Found found = {.number = ++last_number_, .key = shifted.key, .log_ratio = shifted.shift.log_ratio};
  v1::Drift& drift = found.drift;
  drift.set_profile_name(profile.name);
  drift.set_profile_version(profile.version);
  drift.set_cost(Describe(shifted.key));
  drift.set_ratio(std::exp(shifted.shift.log_ratio));
  drift.set_runs(shifted.shift.observations);
  drift.set_found_at(Rfc3339(std::chrono::system_clock::now()));
  std::string then;
  if (calibration.ok()) {
    drift.set_state(v1::Drift::MEASURING);
    drift.set_calibration(static_cast<int>(*calibration));
    then = StrCat("calibration ", *calibration, " measures again what lies on ",
                  planner::Name(planner::ResourceOf(shifted.key)));
  } else {
    drift.set_state(v1::Drift::FAILED);
    drift.set_detail(calibration.status().message());
    then = StrCat("it cannot be measured again: ", drift.detail());
  }
  uses_.log(StrCat("drift of profile ", profile.name, " version ", profile.version, ": ", drift.cost(), " takes ",
                   Times(drift.ratio()), " as long as predicted in ", drift.runs(), " runs; ", then));
  ++found_of_profile_[profile.name];
  found_.push_back(std::move(found));
  if (found_.size() > kMostKept) found_.pop_front();
}

StatusOr<std::int64_t> DriftDesk::StartCalibration(const Profile& profile, const Workload& workload,
                                                   const CostKey& drifted) {
  v1::StartCalibrationRequest request;
  request.set_request_id(StrCat(kRemeasurePrefix, profile.version, " ", RequestId("")));
  ASSIGN_OR_RETURN(*request.mutable_cluster(), ClusterOf(profile.name));
  request.set_profile_name(profile.name);
  request.set_budget_s(kBudgetS);
  request.set_wait_limit_s(kWaitLimitS);
  request.set_samples_only(true);
  *request.mutable_grid() = ToProto(std::vector<Workload>{workload});
  for (const Sample& operation : planner::OperationsOf(profile, drifted, workload, kMostOperations)) {
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
      if (job.newest.samples == 0) continue;  // A mistyped name has measured nothing.
      const auto request = RequestOf(job);
      if (request.ok() && request->profile_name() == profile_name) return job.cluster;
    }
    page.token = jobs.next_token;
  } while (!page.token.empty());
  return error::NoClusterOf(profile_name);
}

void DriftDesk::Stored(const std::string& profile_name, int version) {
  const std::scoped_lock lock(mutex_);
  const auto watched = watched_.find(profile_name);
  if (watched != watched_.end() && watched->second.version < version) Begin(profile_name, version);
}

void DriftDesk::Begin(const std::string& profile_name, int version) {
  watched_[profile_name] = {.version = version};
  std::erase_if(rests_until_, [&](const auto& one) { return one.first.first == profile_name; });
}

void DriftDesk::Return(const std::string& profile_name, const CostKey& key, planner::LevelTest& test) {
  test.MoveTo(0);
  for (Found& found : found_) {
    if (found.drift.profile_name() != profile_name || found.key != key || found.over) continue;
    found.over = true;
    found.drift.set_detail(
        StrCat(found.drift.detail(), found.drift.detail().empty() ? "" : "; ", "runs find it as predicted again"));
  }
  uses_.log(StrCat("drift of profile ", profile_name, ": ", Describe(key), " takes what was predicted again"));
}

void DriftDesk::Ended(const CalibrationJob& job) {
  if (!MeasuresAgain(job)) return;
  StatusOr<Judged> judged = Infeasible(StrCat("calibration ", job.id, ": ", job.newest.detail));
  if (IsDone(job)) judged = Guard([&] { return Judge(job); });
  if (!judged.ok()) uses_.log(StrCat("what drifted was not renewed: ", judged.status().message()));

  const std::scoped_lock starting(starting_);
  const std::scoped_lock lock(mutex_);
  std::erase_if(measuring_, [&](const auto& one) {
    if (one.second != job.id) return false;
    if (!judged.ok()) rests_until_[one.first] = uses_.options.now() + kRest;
    return true;
  });
  for (Found& found : found_) {
    if (found.drift.calibration() == job.id && found.drift.state() == v1::Drift::MEASURING) Conclude(found, judged);
  }
}

void DriftDesk::Conclude(Found& found, const StatusOr<Judged>& judged) {
  v1::Drift& drift = found.drift;
  const auto fail = [&](const std::string& why) {
    drift.set_state(v1::Drift::FAILED);
    drift.set_detail(why);
  };
  if (!judged.ok()) return fail(judged.status().message());
  const auto moved = std::ranges::find(judged->moved, found.key, &planner::MovedCost::key);
  if (moved != judged->moved.end()) {
    drift.set_state(v1::Drift::RENEWED);
    drift.set_renewed_version(judged->version);
    drift.set_detail(Sentence(*moved));
    return;
  }
  if (std::ranges::find(judged->judged, found.key) == judged->judged.end()) {
    if (judged->version == 0) {
      rests_until_[{drift.profile_name(), planner::ResourceOf(found.key)}] = uses_.options.now() + kRest;
    }
    return fail("it was not measured at all of its sizes before the time was spent");
  }
  drift.set_state(v1::Drift::UNCONFIRMED);
  drift.set_detail("measured again, it takes what was predicted: runs see something else");
  WatchedProfile& watched = watched_[drift.profile_name()];
  if (watched.version == judged->against) watched.costs[found.key].test.MoveTo(found.log_ratio);
}

StatusOr<DriftDesk::Judged> DriftDesk::Judge(const CalibrationJob& job) {
  ASSIGN_OR_RETURN(const auto request, RequestOf(job));
  const std::string& name = request.profile_name();
  ASSIGN_OR_RETURN(const Puts::Turn turn, uses_.puts.TakeTurn(name, {}));
  ASSIGN_OR_RETURN(const std::optional<ProfileVersion> before, uses_.store.VersionOfRequest(JudgementOf(job)));
  if (before) return Judged{.version = before->version};
  ASSIGN_OR_RETURN(const Profile profile, uses_.store.LoadProfile({.name = name}));
  ASSIGN_OR_RETURN(const Profile drifted, uses_.store.LoadProfile({.name = name, .version = VersionOf(job)}));
  ASSIGN_OR_RETURN(const std::vector<Calibration> found,
                   uses_.store.SamplesOf({.calibration = Calibrations::SessionOf(job)}));
  std::vector<Sample> samples = found.front().samples.samples;
  DropImpossible(samples);
  // What was renewed meanwhile, as another resource may have been, is newer than these or at least as new.
  std::erase_if(samples, [&](const Sample& sample) { return !SameEntry(sample.key, drifted, profile); });
  if (samples.empty()) return error::StoredMeanwhile(name, VersionOf(job), profile.version);
  ASSIGN_OR_RETURN(planner::Remeasured renewed, planner::Renew(profile, samples));
  if (renewed.moved.empty()) {
    RETURN_IF_ERROR(uses_.store.RememberRequest(
        JudgementOf(job), {.name = name, .version = profile.version, .created_at = profile.created_at}));
    uses_.log(StrCat("calibration ", job.id, " measured again what drifted in profile ", name, ": of ",
                     renewed.judged.size(), " costs none has moved"));
    return Judged{.against = profile.version, .judged = std::move(renewed.judged)};
  }
  // Before the version that no longer knows them, so that whoever is killed between the two does it again.
  std::vector<CostKey> keys;
  for (const planner::MovedCost& moved : renewed.moved) keys.push_back(moved.key);
  RETURN_IF_ERROR(uses_.store.RetireSamples(name, keys, Calibrations::SessionOf(job)));
  ASSIGN_OR_RETURN(const ProfileVersion version, SaveOnce(uses_.store, JudgementOf(job), renewed.profile));
  uses_.log(StrCat("profile ", name, " version ", version.version, ": calibration ", job.id, " renewed ", keys.size(),
                   " costs; ", Sentence(renewed.moved.front())));
  return Judged{.version = version.version,
                .against = version.version,
                .judged = std::move(renewed.judged),
                .moved = std::move(renewed.moved)};
}

Status DriftDesk::Resume() {
  ASSIGN_OR_RETURN(const std::vector<CalibrationJob> unended, uses_.store.UnendedCalibrationJobs());
  for (const CalibrationJob& job : unended) {
    if (!MeasuresAgain(job)) continue;
    const auto request = RequestOf(job);
    if (!request.ok() || request->operations().empty()) continue;
    const auto operation = SampleFromProto(request->operations(0), "operations[0]");
    if (!operation.ok()) continue;
    const std::scoped_lock lock(mutex_);
    measuring_[{request->profile_name(), planner::ResourceOf(operation->key)}] = job.id;
  }
  // Older ones are of versions that are no longer the newest.
  ASSIGN_OR_RETURN(const CalibrationJobPage jobs, uses_.store.ListCalibrationJobs({.size = 100}));
  for (const CalibrationJob& job : jobs.jobs) {
    if (MeasuresAgain(job) && job.newest.ended && IsDone(job)) Ended(job);
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
    const v1::Drift& drift = found->drift;
    if (!seen.emplace(drift.profile_name(), found->key).second) continue;
    const auto watched = watched_.find(drift.profile_name());
    const bool current = watched != watched_.end() && watched->second.version == drift.profile_version();
    const bool off = drift.state() == v1::Drift::FAILED || drift.state() == v1::Drift::UNCONFIRMED;
    counts[drift.profile_name()].off += current && off && !found->over;
  }
  return counts;
}

}  // namespace moeplan::service
