// Lists of cells in the form that kernels want them: made once on the host, read on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/rows.h"

namespace moeplan::executor::cuda {

// Where each run of pairs with the same `to` begins, and behind them the number of pairs. Requires pairs grouped by
// `to`.
std::vector<int32_t> FirstPairsOf(std::span<const CellPair> pairs);

}  // namespace moeplan::executor::cuda
