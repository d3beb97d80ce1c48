#include "planner/search/refusals.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/text.h"

namespace moeplan::planner {

std::string TooLarge(double bytes, const Cluster& cluster) {
  const auto whole = [](double number) { return static_cast<int64_t>(std::ceil(number)); };
  return StrCat("needs at least ", whole(bytes), " bytes on a GPU, ", whole(bytes - cluster.device_memory_bytes),
                " more than cluster.deviceMemoryBytes, which is ", whole(cluster.device_memory_bytes));
}

void Refusals::Add(const Knobs& variant, const std::string& reason) {
  if (!told_.emplace(variant.family, reason).second) return;
  std::string which;
  if (variant.overlapped_gather) which = "with the overlapped gather";
  if (variant.all_to_all != AllToAllAlgorithm::kDirect) which = StrCat("with ", Name(variant.all_to_all));
  if (variant.communication_ctas != 0) {
    which += StrCat(which.empty() ? "with " : " and ", variant.communication_ctas, " CTAs");
  }
  if (!which.empty()) which += ": ";
  skipped_.emplace(variant.family, Skipped{std::string(Name(variant.family)), which + reason});
}

void Refusals::AddTooLarge(const Tried& tried, const Cluster& cluster) {
  if (tried.too_large_bytes.empty()) return;
  const double least_bytes = *std::ranges::min_element(tried.too_large_bytes);
  const std::string which =
      tried.priced.empty() ? "" : StrCat("for ", tried.too_large_bytes.size(), " of its chunk counts, ");
  Add(tried.variant, StrCat(which, TooLarge(least_bytes, cluster)));
}

std::vector<Skipped> Refusals::Take() && {
  std::vector<Skipped> skipped;
  for (auto& [family, one] : skipped_) skipped.push_back(std::move(one));
  return skipped;
}

}  // namespace moeplan::planner
