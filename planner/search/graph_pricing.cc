#include "planner/search/graph_pricing.h"

#include <algorithm>
#include <utility>

#include "models/memory/graph_memory.h"

namespace moeplan::planner {

StatusOr<std::optional<PricedGraph>> GraphPricing::Price(const Knobs& knobs, Tried& tried) {
  RETURN_IF_ERROR(drawing_.Draw(knobs));
  const double bytes = MemoryBytes(drawing_.whole(), workload_);
  if (!Fits(bytes)) {
    if (tried.too_large_bytes.empty()) NoteMissing(drawing_.Prices());
    tried.too_large_bytes.push_back(bytes);
    least_unfit_bytes_ = std::min(least_unfit_bytes_, bytes);
    return std::optional<PricedGraph>();
  }
  GraphPrices prices = drawing_.Prices();
  NoteMissing(prices);
  if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, workload_.layout));
  return std::optional<PricedGraph>({drawing_.priced(), std::move(prices), bytes});
}

bool GraphPricing::Fits(double bytes) const {
  return cluster_.device_memory_bytes <= 0 || bytes <= cluster_.device_memory_bytes;
}

void GraphPricing::NoteMissing(const GraphPrices& prices) {
  missing_.insert(prices.missing.begin(), prices.missing.end());
}

}  // namespace moeplan::planner
