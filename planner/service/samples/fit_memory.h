// Fitted curves, kept for the next fit: of a profile that gets samples, most curves have none that are new, and a fit
// that was stopped goes on with the curves that it had.
//
// A curve is known by its key, sizes and times as a whole (their SHA-256, so that nobody finds samples that pass for
// another's). Threads: any. Holds at most kMostCurves; beyond, the one that was asked for longest ago goes.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/fit/fit.h"

namespace moeplan::service {

class FitMemory {
 public:
  static constexpr size_t kMostCurves = 8192;

  explicit FitMemory(size_t most_curves = kMostCurves) : most_curves_(most_curves) {}

  // FitCurve, or what it answered before.
  CostModel Fit(const CostKey& key, const std::vector<SizedTimes>& measurements);

  // How many were fitted, rather than known.
  int fitted() const;

 private:
  using Known = std::list<std::pair<std::string, CostModel>>;  // By digest; last asked for first.

  const size_t most_curves_;
  mutable std::mutex mutex_;
  Known known_;  // Guarded by mutex_, as below.
  std::map<std::string, Known::iterator> places_;
  int fitted_ = 0;
};

}  // namespace moeplan::service
