// A layout whose step was priced, and what an answer says of it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/step_time.h"

namespace moeplan::planner {

struct PricedLayout {
  LayoutPoint point;
  StepTime time;
  RankMemory memory;
  MoePlan moe;  // As by default where no layer has experts.
  // Whether Lancet's passes plan the graphs of its stages, and what that gains for each; none where they gain nothing.
  bool lancet = false;
  std::vector<StageGain> gains;
};

// The memory of a GPU; infinite where it is not known.
double DeviceBytes(const Profile& profile);

// The peak that MFU is over, in flop/s: the cluster's, but for one that its own products exceed, since a peak that
// nobody told is the fastest of those measured, and larger ones are faster. 0: not known.
double PeakFlopsPerS(const Profile& profile, const CostBook& book);
// Warns where that is not the cluster's.
void WarnOfPeak(const Profile& profile, const CostBook& book, std::set<std::string>& warnings);

// A layout of a model without experts; its step is not priced yet.
PricedLayout WithoutExperts(const LayoutRequest& request, const LayoutPoint& point);

// The best of the plans with which a rank needs no more than `device_bytes`; its step is not priced yet. Absent: there
// is none, and `least_bytes` is what the smallest needs, if that is less than it was.
std::optional<PricedLayout> BestThatFits(const LayoutRequest& request, const LayoutPoint& point, const MoePlans& plans,
                                         double device_bytes, double& least_bytes);

// `plans` is null where no layer has experts. Prices the step once more, for what it alone asks of the book; `warnings`
// gets what the book has to say of that.
RankedLayout Describe(const LayoutRequest& request, const Profile& profile, const PricedLayout& priced,
                      const MoePlans* plans, CostBook& book, std::set<std::string>& warnings);

}  // namespace moeplan::planner
