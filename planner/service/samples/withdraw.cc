#include "planner/service/samples/withdraw.h"

#include <span>

#include "planner/service/samples/fit_together.h"

namespace moeplan::service {

StatusOr<WithdrawOutcome> Withdraw(Store& store, const WithdrawRequest& request) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = request.profile_name});
  if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  const bool knows_peak = newest.ok() && newest->cluster.peak_flops_per_s > 0;
  const UnknownPeak unknown_peak = knows_peak ? UnknownPeak::kFastestProduct : UnknownPeak::kStaysUnknown;
  return store.WithdrawSamples(
      request, [unknown_peak](std::span<const Calibration> left) { return FitTogether(left, unknown_peak); });
}

}  // namespace moeplan::service
