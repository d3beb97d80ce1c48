#include "models/plan/build_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "models/schedule/gradient_slices.h"
#include "models/schedule/launch_order.h"
#include "models/text.h"
#include "models/workload/groups.h"

namespace moeplan {

StatusOr<TaskGraph> BuildPlan(const Plan& plan, const Workload& workload, const Cluster& cluster) {
  std::vector<std::string> order = plan.order;
  double bytes = 0;
  for (size_t slice = 0; slice < plan.gradients.slices.size(); ++slice) {
    bytes += plan.gradients.slices[slice].bytes;
    std::erase(order, SliceName(slice));
  }
  const double expected = GroupSize(Group::kDenseReplicas, workload.layout) > 1 ? workload.gradient_bytes : 0;
  if (bytes != expected) {
    return InvalidInput(StrCat("gradients.slices: found ", bytes, " bytes in all, expected ", expected,
                               ", which is what the workload's gradientBytes have to exchange"));
  }
  ASSIGN_OR_RETURN(TaskGraph graph, BuildPlanned(plan.knobs, order, workload, cluster));
  return WithGradientSlices(std::move(graph), plan.gradients.slices);
}

}  // namespace moeplan
