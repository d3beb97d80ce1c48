// From stored samples to a stored profile, for all that bring samples.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/cost/profile.h"
#include "models/cost/samples.h"
#include "models/status.h"

namespace moeplan::service {

// All sessions whose samples have this name; empty when there are none.
StatusOr<std::vector<Calibration>> CalibrationsOf(const Store& store, const std::string& name);

// kInvalidInput when earlier samples of that name are of another cluster.
Status CheckCluster(const Store& store, const SampleSet& samples);

// The fit of all their samples together, on the cluster of the first. Requires at least one.
StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations);

// The same, stored as the next version of its name; which one that is.
StatusOr<int> FitAndSave(Store& store, std::span<const Calibration> calibrations);

// The newest version of its name where that says the same; else the profile, stored as the next.
StatusOr<ProfileVersion> NewestOrSaved(Store& store, const Profile& profile);

}  // namespace moeplan::service
