// Whole cells: copied into place and summed (executor/kernels.h: CopyCells, SumCells), as kernels on a CUDA stream.
//
// Lists of pairs and all other pointers are device memory that must live until the stream has passed. Cells hold as
// many rows as the counts say when the stream gets there.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

// Each pair's cell of `in` to its cell of `out`, which has as many rows.
Status CopyCells(const RowShape& shape, const PlacedRows& in, const PlacedRows& out, const CellPair* pairs, int count,
                 cudaStream_t stream);

// Pairs grouped by `to`: group g begins at first_pairs[g] and ends at first_pairs[g + 1] (FirstPairsOf).
struct CellGroups {
  const CellPair* pairs = nullptr;
  const int32_t* first_pairs = nullptr;
  int groups = 0;
};
// Each group's cell of `out` becomes the sum of its cells of `in`: in float, in their order, rounded once.
Status SumCells(const RowShape& shape, const PlacedRows& in, const PlacedRows& out, const CellGroups& groups,
                cudaStream_t stream);

}  // namespace moeplan::executor::cuda
