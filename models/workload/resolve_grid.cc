#include "models/workload/resolve_grid.h"

#include "models/text.h"

namespace moeplan {

StatusOr<std::vector<Workload>> ResolveGrid(const std::vector<Workload>& workloads, const Cluster& cluster) {
  std::vector<Workload> resolved;
  for (size_t i = 0; i < workloads.size(); ++i) {
    StatusOr<Workload> one = ResolveWorkload(workloads[i], cluster);
    if (!one.ok()) return one.status().Within(StrCat("workloads[", i, "] (", workloads[i].name, ")"));
    resolved.push_back(*std::move(one));
  }
  return resolved;
}

}  // namespace moeplan
