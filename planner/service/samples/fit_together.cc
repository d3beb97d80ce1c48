#include "planner/service/samples/fit_together.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "models/cost/plausible.h"
#include "models/fit/fit.h"
#include "models/fit/peak_flops.h"
#include "planner/service/errors.h"
#include "planner/service/puts.h"

namespace moeplan::service {
namespace {

// Peaks are measured by each calibration, the memory of devices is what a driver says of it, and links may slow down.
bool SameCluster(const Cluster& one, const Cluster& other) {
  return one.nodes == other.nodes && one.gpus_per_node == other.gpus_per_node;
}

}  // namespace

StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations, UnknownPeak unknown_peak,
                              const FitUses& uses) {
  SampleSet all = {.name = calibrations.front().samples.name, .cluster = calibrations.front().samples.cluster};
  ForgetImpossible(all.cluster);
  bool knows_peak = true;
  for (const Calibration& calibration : calibrations) {
    Cluster cluster = calibration.samples.cluster;
    ForgetImpossible(cluster);
    // Commands that write to the database themselves may have mixed them.
    if (!SameCluster(cluster, all.cluster)) return error::MixedClusters(all.name, calibration.calibration);
    // Links may have slowed down since; what was measured before is of the faster ones.
    for (double Cluster::*const most :
         {&Cluster::peak_flops_per_s, &Cluster::node_link_bytes_per_s, &Cluster::network_bytes_per_s}) {
      all.cluster.*most = std::max(all.cluster.*most, cluster.*most);
    }
    if (cluster.device_memory_bytes > 0) all.cluster.device_memory_bytes = cluster.device_memory_bytes;
    knows_peak = knows_peak && cluster.peak_flops_per_s > 0;
    all.samples.insert(all.samples.end(), calibration.samples.samples.begin(), calibration.samples.samples.end());
  }
  const int impossible = DropImpossible(all.samples);
  if (all.samples.empty()) return error::NothingPossible(all.name, impossible);
  if (!knows_peak && unknown_peak == UnknownPeak::kFastestProduct) {
    all.cluster.peak_flops_per_s = std::max(all.cluster.peak_flops_per_s, FastestGemmFlopsPerS(all.samples));
  }
  CurveFit fit_curve;
  if (uses.memory != nullptr) {
    fit_curve = [memory = uses.memory](const CostKey& key, const std::vector<SizedTimes>& measurements) {
      return memory->Fit(key, measurements);
    };
  }
  return moeplan::FitProfile(all, uses.stop, fit_curve);
}

StatusOr<Profile> FitStored(Store& store, const std::string& request, const std::string& profile_name,
                            UnknownPeak unknown_peak, const FitUses& uses) {
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<ProfileVersion> before, store.VersionOfRequest(request));
    if (before && before->name != profile_name) return error::RequestReused(request);
    if (before) return store.LoadProfile({.name = before->name, .version = before->version});
    ASSIGN_OR_RETURN(const std::int64_t withdrawal, store.LatestWithdrawal());
    ASSIGN_OR_RETURN(const std::vector<Calibration> calibrations, store.SamplesOf({.profile_name = profile_name}));
    ASSIGN_OR_RETURN(Profile profile, FitTogether(calibrations, unknown_peak, uses));
    const StatusOr<ProfileVersion> saved = SaveOnce(store, request, profile, withdrawal);
    if (saved.ok()) {
      profile.version = saved->version;
      profile.created_at = saved->created_at;
      return profile;
    }
    if (saved.status().code() != StatusCode::kUnavailable) return saved.status();
    // Another process has withdrawn samples meanwhile, and what was fitted may be what it took out.
    ASSIGN_OR_RETURN(const std::int64_t latest, store.LatestWithdrawal());
    if (latest == withdrawal) return saved.status();
  }
}

}  // namespace moeplan::service
