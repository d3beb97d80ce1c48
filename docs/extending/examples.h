// The examples of docs/extending.md, each in a file of its own.
#pragma once

#include "models/extension/extension.h"

namespace examples {

// PAIRWISE: an all-to-all in as many steps as there are ranks.
moeplan::Status AddPairwise();
// FP4: a codec of 4 bits a value and a scale for each row.
moeplan::Status AddFp4();
// SQUARED_RELU: experts with max(0, x)² between their matrices.
moeplan::Status AddSquaredRelu();
// SHARD_GATHER: a schedule that sends each slot between nodes once, however many ranks share its expert.
moeplan::Status AddShardGather();

moeplan::Status AddAll();

}  // namespace examples
