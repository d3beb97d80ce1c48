// Prices the exchange of a MoE layer's rows through a training framework's dispatcher, as a cost model of the
// all-to-all that the layer's schedule has in its place.
//
// The schedule counts the bytes of an all-to-all: a row for each token and expert. An all-gather moves the rows of all
// ranks there, and a reduce-scatter moves them back. DeepEP and HybridEP send a row once to each node that needs it,
// and spread it there to the ranks that do: the slower of both, since they do one while the other runs. Where the
// dispatcher itself was measured, that curve counts; else links carry its bytes as fast as they carry an all-to-all's,
// times what was measured elsewhere (docs/decisions/0032). Pure.
#pragma once

#include <optional>

#include "models/cost/cost_model.h"
#include "models/cost/operation.h"
#include "models/routing/token_copies.h"

namespace moeplan::planner {

struct Dispatching {
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  Transport transport = Transport::kNccl;
  EvenRouting routing;
  double pair_rows = 1;  // Of an all-to-all for each pair of token and expert: padding, or the busiest rank's.
};

// How many times as fast a dispatcher moves its bytes as an all-to-all would on the same links, and the ratio within
// which 90 % of the measured ones lie.
struct DispatchRate {
  double over_all_to_all = 1, error_ratio = 1;
};

// These figures of dispatchers were measured elsewhere (docs/decisions/0032).
struct DispatchFigures {
  // Inside a node: 20 SMs of DeepEP on H100 beside NCCL (ai-dynamo/aiconfigurator).
  DispatchRate deepep_inside = {0.92, 1.15}, hybridep_inside = {1.02, 1.15};
  // Across nodes: B300 and H100 over EFA, 2 to 8 nodes, 2026 (awslabs/awsome-distributed-ai), with NVSHMEM or UCCL; and
  // HybridEP beside DeepEP on H100 over InfiniBand (NVIDIA-NeMo/Automodel docs/deepep_vs_hybridep_benchmark.md).
  DispatchRate deepep_across = {1.02, 1.15}, hybridep_across = {1.08, 1.25}, uccl_across = {0.86, 1.45};
  // Processors of the GPU that compute lacks while rows are exchanged, where nobody measured how that slows it:
  // Megatron Core's defaults (moe_deepep_num_sms, moe_hybridep_num_sms), and as many as NCCL usually has channels on
  // the eight GPUs of a node.
  double deepep_processors = 20, hybridep_processors = 16, nccl_processors = 24;
};
DispatchRate RateOf(const DispatchFigures& figures, Dispatcher dispatcher, Transport transport, bool across_nodes);
double ProcessorsTaken(const DispatchFigures& figures, Dispatcher dispatcher);

// Bytes as the curve counts them, over those of the all-to-all in its place.
double OnceANode(const EvenRouting& routing, const GroupShape& group);  // To nodes; inside one node to ranks.
double OnceARank(const EvenRouting& routing, const GroupShape& group);
double Gathered(const Dispatching& dispatching, const GroupShape& group);  // All rows, by an all-gather.

// A curve and how many times the all-to-all's bytes it is asked for.
struct ScaledCurve {
  const CostModel* model = nullptr;
  double bytes_ratio = 1;
  double bus_factor = 1;
};

// At each size the longer of both, or their mean, over `rate`. Absent where either has no model.
enum class Joined { kLonger, kMean };
std::optional<CostModel> JoinedModel(const ScaledCurve& one, const ScaledCurve& other, Joined joined,
                                     const DispatchRate& rate);

// The measured curve; beyond the sizes that it was measured at, what the links say, as many times as at its end, and
// with the error of `rate` where a few sizes say little of others. Without links, the curve as it goes on. Requires a
// measured model.
CostModel MeasuredModel(const ScaledCurve& measured, const std::optional<CostModel>& by_links,
                        const DispatchRate& rate);

}  // namespace moeplan::planner
