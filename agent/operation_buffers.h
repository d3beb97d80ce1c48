// What the buffers of an operation (agent/operation.h) take on a rank's device: of who allocates them, and of who asks
// beforehand whether they fit. Pure.
#pragma once

#include <cstddef>

#include "executor/layer/layer_weights.h"
#include "models/cost/operation.h"
#include "models/workload/workload.h"

namespace moeplan::agent {

struct CollectiveBuffers {
  size_t bytes = 0;  // Of what is sent and of what is received, each.
  size_t gathered_bytes = 0;
  size_t scratch_bytes = 0;  // Of an all-to-all that is not DIRECT, on the rank of the group.
};
// `bytes` is rounded up to what the group divides.
CollectiveBuffers BuffersOf(const CollectiveKey& key, double bytes, int group_rank);

// Whether the key is of the shared expert's products: where they do not differ in the hidden dimension from the other
// experts', one measurement serves both.
bool IsSharedExpert(const KernelKey& key, const Workload& workload);
// Of the experts whose product the kernel is; none for another kernel.
executor::ExpertShard ExpertsOf(const KernelKey& key, const Workload& workload);

// Rows spread evenly over the experts.
struct KernelBuffers {
  int experts = 1, rows_per_expert = 1, rows = 1, tokens = 1;
  size_t slot_bytes = 0, output_bytes = 0;
  size_t hidden_bytes = 0;  // Of the hidden rows and of their gradient, each.
  size_t token_bytes = 0, routing_bytes = 0, sum_bytes = 0;
};
// Requires a size of at most kMostRows rows.
KernelBuffers BuffersOf(const KernelKey& key, double size, const Workload& workload);
inline constexpr double kMostRows = 1e8;
double RowsOf(const KernelKey& key, double size, const Workload& workload);

// All of them together on the first rank, without weights and what runs beside; infinity for more than kMostRows.
double OperationBytes(const CostKey& key, double size, const Workload& workload);

}  // namespace moeplan::agent
