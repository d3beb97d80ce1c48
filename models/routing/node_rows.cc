#include "models/routing/node_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/routing/expert_load.h"
#include "models/routing/token_copies.h"

namespace moeplan {
namespace {

// Of each node, the chance that a token chooses any of its experts.
std::vector<double> ChancesOf(const Workload& workload, int nodes) {
  const Layer& layer = workload.layer;
  if (IsEven(workload)) {
    const EvenRouting routing = {.experts = layer.experts,
                                 .top_k = layer.top_k,
                                 .groups = layer.router.expert_groups,
                                 .groups_per_token = layer.router.groups_per_token};
    return std::vector<double>(nodes, ExpectedPlaces(routing, nodes) / nodes);
  }
  std::vector<double> chances = RankLoads(ExpertShares(workload), nodes);
  for (double& chance : chances) chance = 1 - std::pow(1 - std::min(1.0, chance), layer.top_k);
  return chances;
}

}  // namespace

NodeRows BusiestNodeRows(const Workload& workload, int nodes) {
  const double tokens = SizesOf(workload.layer, workload.layout).tokens / workload.layout.tensor_parallel;
  const std::vector<double> chances = ChancesOf(workload, nodes);
  const std::vector<double> pairs = RankLoads(FilledSlots(workload), nodes);
  NodeRows rows;
  for (int node = 0; node < nodes; ++node) {
    // Of a rank. No more rows than pairs go anywhere, however capacity drops them.
    const double own_pairs = pairs[node] / workload.layout.tensor_parallel;
    const double own_rows = std::min(tokens * chances[node], own_pairs);
    rows.sent += own_rows;
    rows.received = std::max(rows.received, nodes * own_rows);
    rows.passed_on = std::max(rows.passed_on, nodes * own_pairs);
  }
  return rows;
}

}  // namespace moeplan
