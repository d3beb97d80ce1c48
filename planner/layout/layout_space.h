// Which layouts a model can take on a cluster, before anyone prices them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "models/layout/layout_answer.h"
#include "models/status.h"
#include "models/step/layer_work.h"
#include "models/workload/groups.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// One point: degrees, how many samples run at once, and where contexts lie.
struct LayoutPoint {
  Layout layout;
  int micro_batch = 1;
  int micro_batches = 1;  // m: global batch / (DP · micro_batch).
  bool horizontal_contexts = false;
  int network_scale = 1;  // MoNTA §5: ep·cp horizontal, max(ep, cp) vertical.

  friend bool operator==(const LayoutPoint&, const LayoutPoint&) = default;
};

// Tokens of a micro-batch that a tensor-parallel group holds. Points with more than this are left out.
double TokensOf(const LayoutPoint& point, int sequence_length);
inline constexpr double kMostTokens = 1 << 24;

// What a rank holds of a micro-batch and of a layer.
RankSlice SliceOf(const LayoutRequest& request, const LayoutPoint& point);

// Groups of the dense layers that models/workload/groups.h does not name. Dense ranks lie as [TP, CP, DP] (vertical) or
// [TP, EP inside DP, CP, DP/EP] (horizontal) in a stage, stages are consecutive.
GroupShape ContextGroup(const LayoutPoint& point, int gpus_per_node);
int ContextStride(const LayoutPoint& point);  // How far apart neighbours of that group are in rank order.
GroupShape DenseReplicas(const LayoutPoint& point, int gpus_per_node);   // CP·DP: who sums dense gradients.
GroupShape ExpertReplicas(const LayoutPoint& point, int gpus_per_node);  // EDP: who sums those of experts.
// The slowest pair: where there are several nodes, some stages lie on different ones.
GroupShape NeighbourStages(const LayoutPoint& point, int gpus_per_node);
int StageRanks(const Layout& layout);  // A stage's ranks, and how far apart neighbours of that pair are in rank order.

// MoNTA's rule, which prefers horizontal contexts where CP is below EP. Whether a layout may have them is another
// question (AllLayoutPoints).
bool RuleLiesAcross(const Layout& layout);

// The point of a layout, DP filled in where it is 0, contexts where MoNTA's rule has them where that is not said.
// kInvalidInput: it breaks a rule (layout_rules.h), contexts cannot be horizontal, or a micro-batch has too many
// tokens. Requires a checked request.
StatusOr<LayoutPoint> PointOf(const LayoutRequest& request, const Cluster& cluster, const Layout& layout,
                              int micro_batch, std::optional<bool> horizontal_contexts = std::nullopt);

// Every point that the rules allow, in a fixed order; micro-batches are powers of two up to 64 samples. Contexts are
// vertical, and once more horizontal where CP and EP are above 1, the ranks of EP and ESP beside TP are a whole number
// above 1 (of one, both are the same ranks) that divides DP, the network joins ep·cp ranks, and the request is not
// as_frameworks. Stopped, or where there are more than kMostLayoutPoints, it ends early, in the latter case
// with more than those. Requires a checked request.
std::vector<LayoutPoint> AllLayoutPoints(const LayoutRequest& request, const Cluster& cluster,
                                         const StopSignals& stop = {});

// Models and clusters whose numbers have many divisors can have more points than memory holds. A model of 128 experts
// on 1,024 GPUs has 38,462 (tests/bench/layout_bench).
inline constexpr size_t kMostLayoutPoints = 1 << 20;

}  // namespace moeplan::planner
