#include "planner/service/handlers/fit_samples.h"

#include "models/fit/fit.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/same_models.h"

namespace moeplan::service {

StatusOr<std::vector<Calibration>> CalibrationsOf(const Store& store, const std::string& name) {
  StatusOr<std::vector<Calibration>> found = store.SamplesOf({.profile_name = name});
  if (!found.ok() && found.status().code() == StatusCode::kNotFound) return std::vector<Calibration>();
  return found;
}

Status CheckCluster(const Store& store, const SampleSet& samples) {
  ASSIGN_OR_RETURN(const std::vector<Calibration> earlier, CalibrationsOf(store, samples.name));
  for (const Calibration& calibration : earlier) {
    const Cluster& cluster = calibration.samples.cluster;
    if (cluster != samples.cluster) return error::OtherCluster(samples.name, samples.cluster, cluster);
  }
  return OkStatus();
}

StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations) {
  SampleSet all = calibrations.front().samples;
  for (const Calibration& calibration : calibrations.subspan(1)) {
    all.samples.insert(all.samples.end(), calibration.samples.samples.begin(), calibration.samples.samples.end());
  }
  return FitProfile(all);
}

StatusOr<int> FitAndSave(Store& store, std::span<const Calibration> calibrations) {
  ASSIGN_OR_RETURN(const Profile profile, FitTogether(calibrations));
  ASSIGN_OR_RETURN(const ProfileVersion saved, store.SaveProfile(profile));
  return saved.version;
}

StatusOr<ProfileVersion> NewestOrSaved(Store& store, const Profile& profile) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = profile.name});
  if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  if (!newest.ok() || !SameModels(*newest, profile)) return store.SaveProfile(profile);
  return ProfileVersion{.name = newest->name, .version = newest->version, .created_at = newest->created_at};
}

}  // namespace moeplan::service
