// What a search leaves out, and why.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/plan/plan.h"
#include "models/workload/workload.h"
#include "planner/search/tried.h"

namespace moeplan::planner {

// "needs at least 2000 bytes on a GPU, 500 more than cluster.deviceMemoryBytes, which is 1500".
std::string TooLarge(double bytes, const Cluster& cluster);

class Refusals {
 public:
  // Each reason is told once for a family, of the first variant that it keeps out.
  void Add(const Knobs& variant, const std::string& reason);
  // Piece counts of the variant that do not fit the device, where there are some.
  void AddTooLarge(const Tried& tried, const Cluster& cluster);

  // In the order of Families(); those of one family as they came.
  std::vector<Skipped> Take() &&;

 private:
  std::multimap<Family, Skipped> skipped_;
  std::set<std::pair<Family, std::string>> told_;
};

}  // namespace moeplan::planner
