// What to measure again when a cost has drifted, and what to make of it.
//
// A link that slows down slows everything that crosses it, so all costs that lie on the drifted one's resource are
// measured again: with only some of them renewed, a planner would be drawn to those that are not.
//
// Pure.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "models/cost/profile.h"
#include "models/cost/samples.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

enum class Resource {
  kInterNode,  // Collectives over several nodes.
  kIntraNode,  // Collectives on one.
  kCompute,    // Kernels.
};
// "INTER_NODE", "INTRA_NODE", "COMPUTE".
std::string_view Name(Resource resource);
Resource ResourceOf(const CostKey& key);

// Of every entry of the profile that lies on the resource of `drifted` the sizes that its curve has points at, both
// ends and up to six between them, of a line without points those that measuring begins with; without times. Of kernels
// those that `workload` has the shapes of (IsKernelOf). First those of `drifted`, then those without contention, then
// the others, at most `most` in all.
std::vector<Sample> OperationsOf(const Profile& profile, const CostKey& drifted, const Workload& workload, size_t most);

// A cost that is not what it was.
struct MovedCost {
  CostKey key;
  double ratio = 1;  // Measured again over predicted, the median over sizes.

  friend bool operator==(const MovedCost&, const MovedCost&) = default;
};

struct Remeasured {
  std::vector<CostKey> judged;   // In the profile's order, as is the next.
  std::vector<MovedCost> moved;  // Of the judged.
  Profile profile;               // `before` with the models of `moved` fitted to the new samples alone.
};

// Samples that are off by less are what machines differ by from one hour to another (docs/decisions/0010).
inline constexpr double kMovedRatio = 1.10;

// Holds samples that were taken again against the profile. A cost that was measured at fewer sizes than OperationsOf
// asks for is not judged. kInvalidInput as of FitProfile.
StatusOr<Remeasured> Renew(const Profile& before, const std::vector<Sample>& samples);

}  // namespace moeplan::planner
