// Whether all ranks of a job are about to make the same layer: with different plans they would wait for each other
// until the deadline.
#pragma once

#include "executor/moe_layer.h"

namespace moeplan::executor {

// Collective over the job; blocks. Each rank brings its plan, or why it has none. OK on every rank, or kInvalidInput on
// every rank that names the first field that differs, the lowest rank that has it otherwise than rank 0, and both
// values; or the lowest rank without a plan and its reason. A rank without a plan gets that reason itself.
Status AgreeOnPlan(const StatusOr<LayerPlan>& plan, RankRuntime& rank);

}  // namespace moeplan::executor
