// Takes stored samples out of the fits of a name.
#pragma once

#include "db/store.h"
#include "models/status.h"

namespace moeplan::service {

// Store::WithdrawSamples, with the samples that are left fitted as FitTogether fits them. The peak of the cluster,
// where no calibration states it, is measured anew if the newest version has one.
StatusOr<WithdrawOutcome> Withdraw(Store& store, const WithdrawRequest& request);

}  // namespace moeplan::service
