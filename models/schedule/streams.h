// Which stream carries which collectives.
#pragma once

#include "models/schedule/task_graph.h"
#include "models/workload/groups.h"

namespace moeplan {

// The stream of collectives over a group, or a team, of that shape: INTRA_NODE where it stays inside a node, else
// INTER_NODE.
inline StreamKind StreamOf(const GroupShape& shape) {
  return shape.ranks_per_node == shape.size ? StreamKind::kIntraNode : StreamKind::kInterNode;
}
inline StreamKind StreamOf(Group group, const Layout& layout, int gpus_per_node) {
  return StreamOf(ShapeOf(group, layout, gpus_per_node));
}

}  // namespace moeplan
