#include "planner/service/handlers/put_samples.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/service/errors.h"
#include "planner/service/handlers/fit_samples.h"
#include "planner/service/handlers/same_models.h"
#include "proto/convert/samples.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

StatusOr<SampleSet> SamplesOf(const v1::PutSamplesRequest& request) {
  if (request.samples().name().empty()) {
    return moeplan::error::Mismatch("samples.name", "nothing", "a text that is not empty");
  }
  if (request.samples().samples().empty()) {
    return moeplan::error::Mismatch("samples.samples", "nothing", "at least one sample");
  }
  StatusOr<SampleSet> samples = SamplesFromProto(request.samples());
  return samples.ok() ? samples : samples.status().Within("samples");
}

// First version first.
StatusOr<std::vector<Profile>> VersionsOf(const Store& store, const std::string& name) {
  std::vector<Profile> versions;
  const StatusOr<Profile> newest = store.LoadProfile({.name = name});
  if (!newest.ok() && newest.status().code() == StatusCode::kNotFound) return versions;
  RETURN_IF_ERROR(newest.status());
  for (int version = 1; version <= newest->version; ++version) {
    ASSIGN_OR_RETURN(Profile profile, store.LoadProfile({.name = name, .version = version}));
    versions.push_back(std::move(profile));
  }
  return versions;
}

// The version that the put of the calibration at `position` became; absent when it never got so far.
StatusOr<std::optional<int>> VersionOfPut(const Store& store, std::span<const Calibration> calibrations,
                                          size_t position, std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const std::vector<Profile> versions, VersionsOf(store, calibrations[position].samples.name));
  for (size_t count = position + 1; count <= calibrations.size(); ++count) {
    if (cancelled.stop_requested()) return error::CallerLeft();
    ASSIGN_OR_RETURN(const Profile fitted, FitTogether(calibrations.first(count)));
    const auto same = std::ranges::find_if(versions, [&](const Profile& stored) { return SameModels(stored, fitted); });
    if (same != versions.end()) return std::optional(same->version);
  }
  return std::optional<int>();
}

StatusOr<int> VersionOfRetry(Store& store, const std::string& request_id, std::span<const Calibration> calibrations,
                             std::stop_token cancelled) {
  const auto own = std::ranges::find(calibrations, request_id, &Calibration::calibration);
  const auto position = static_cast<size_t>(own - calibrations.begin());
  if (own != calibrations.end()) {
    ASSIGN_OR_RETURN(const std::optional<int> version, VersionOfPut(store, calibrations, position, cancelled));
    if (version) return *version;
  }
  return FitAndSave(store, calibrations);
}

StatusOr<int> Put(Store& store, const std::string& request_id, const SampleSet& samples, std::stop_token cancelled) {
  RETURN_IF_ERROR(CheckCluster(store, samples));
  const SampleBatch batch = {.request_id = request_id, .samples = samples};
  ASSIGN_OR_RETURN(const AppendOutcome appended, store.AppendSamples({&batch, 1}));
  ASSIGN_OR_RETURN(const std::vector<Calibration> calibrations, CalibrationsOf(store, samples.name));
  if (appended.repeated > 0) return VersionOfRetry(store, request_id, calibrations, cancelled);
  return FitAndSave(store, calibrations);
}

}  // namespace

StatusOr<v1::PutSamplesResponse> PutSamples(const Environment& environment, const v1::PutSamplesRequest& request,
                                            std::stop_token cancelled) {
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  ASSIGN_OR_RETURN(const SampleSet samples, SamplesOf(request));
  const std::scoped_lock in_turn(environment.puts.in_turn);
  if (cancelled.stop_requested()) return error::CallerLeft();
  ASSIGN_OR_RETURN(const int version, Put(environment.store, request.request_id(), samples, cancelled));
  v1::PutSamplesResponse response;
  response.set_profile_name(samples.name);
  response.set_profile_version(version);
  response.set_stored_samples(static_cast<int>(samples.samples.size()));
  return response;
}

}  // namespace moeplan::service
