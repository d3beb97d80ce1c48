// What if: the best plan at every point of a grid of changed fields.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "planner/search/plan_layer.h"
#include "planner/sweep/sweep_axis.h"

namespace moeplan::planner {

// One point.
struct SweepRow {
  std::vector<SweepValue> values;     // One for each axis.
  std::optional<Plan> best;           // Absent: nothing is feasible.
  std::string reason;                 // Why not; empty when there is a best.
  bool refused = false;               // The point's workload is wrong, or nothing it needs is known.
  std::vector<std::string> warnings;  // Of its answer, such as what was asked outside the measured range.
  bool extrapolated = false;          // Others stand in for a cost that its layer lacks.
  PlanComparison comparison;          // Of the best, where the sweep compares, as is the next.
  std::vector<CostKey> priced_from;   // Entries of the profile, before they are changed; what takes most time first.
};

struct SweepOptions {
  bool extrapolate = false;  // Others stand in for costs that the profile lacks at a point.
  bool compare = false;      // Rows have a comparison.
  int64_t most_rows = 1'000'000;
  std::string what = "--sweep";  // Where the axes come from; begins every error about them.
};

class Sweep {
 public:
  // All combinations of the axes (sweep_axis.h), in the order given, the last fastest. `axes` has at least one. A path
  // that stands twice, more than most_rows points, and what an axis refuses are kInvalidInput.
  static StatusOr<Sweep> Make(v1::Workload workload, Profile profile, const std::vector<std::string>& axes,
                              SweepOptions options = {});

  int64_t rows() const { return rows_; }
  bool extrapolates() const { return options_.extrapolate; }
  std::vector<std::string> paths() const;
  // On entries that an axis names but cannot set, a sentence an axis.
  std::vector<std::string> notes() const;

  // Plans every point on `threads` threads, at least 1, and gives the rows in order to `emit`, on the calling thread,
  // as soon as they and all before them are there. A point whose workload is wrong or does not fit is a row without
  // `best`. What is held at once does not grow with the number of rows. Ends early with what `emit` returns when that
  // is an error. The rows are the same for every number of threads. kCancelled: cancelled before the last row.
  Status Run(int threads, const std::function<Status(const SweepRow&)>& emit,
             const std::stop_token& cancelled = {}) const;

  v1::WhatIfRow ToProto(const SweepRow& row) const;

 private:
  class Planner;

  Sweep() = default;
  // The value of each axis at a point.
  std::vector<size_t> PointAt(int64_t row) const;

  v1::Workload workload_;
  Profile profile_;
  v1::Profile message_;  // Of profile_.
  std::vector<SweepAxis> axes_;
  int64_t rows_ = 1;
  SweepOptions options_;
};

}  // namespace moeplan::planner
