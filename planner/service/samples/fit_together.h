// Fits everything that is stored under a name, whoever brought it: jobs, agents, or `moeplan calibrate`.
#pragma once

#include <span>
#include <stop_token>
#include <string>

#include "db/store.h"
#include "models/status.h"
#include "planner/service/samples/fit_memory.h"

namespace moeplan::service {

// How a fit treats a peak rate (cluster.peakFlops) that the calibration does not know.
enum class UnknownPeak {
  kStaysUnknown,
  kFastestProduct,  // What the fastest product of experts reached, of all samples (models/fit/peak_flops.h).
};

// What a fit looks at beside samples.
struct FitUses {
  std::stop_token stop;
  FitMemory* memory = nullptr;  // Null: every curve is fitted.
};

// The fit of all their samples together, on the nodes of the first; the peak is the highest that any of them states, or
// what `unknown_peak` says, the memory of a device what the last that knows it states. Samples that are impossible
// (IsPossible, models/cost/samples.h) are left out: a moeplan without bounds may have stored them. kInvalidInput: a
// calibration is of another cluster; kInfeasible: no sample is possible; kCancelled: `stop` was requested. Requires at
// least one calibration. Pure.
StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations, UnknownPeak unknown_peak,
                              const FitUses& uses = {});

// Fits all samples that are stored under the name and saves the profile as its next version, unless the newest says the
// same: fits are the same to the bit for the same samples. The profile, with the version that it has now. `request` is
// unique among all requests that make profiles; one that is known answers the version that it first became. Call it
// with the name's turn (Puts) where there are other threads. kCancelled: `stop` was requested, and nothing was saved.
StatusOr<Profile> FitStored(Store& store, const std::string& request, const std::string& profile_name,
                            UnknownPeak unknown_peak, const FitUses& uses = {});

}  // namespace moeplan::service
