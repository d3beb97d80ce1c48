// The one kernel that the machine itself launches, as plain loops on a stream.
#include <cuda_runtime_api.h>
#include "executor/cuda/cell_kernels.h"
#include "executor/cuda/errors.h"
#include "executor/host/parts.h"

namespace moeplan::cuda {

Status SumCells(const RowShape& shape, const PlacedRows& in, const PlacedRows& out, const CellGroups& groups,
                cudaStream_t stream) {
  const auto sum = [=] {
    const size_t bytes = shape.row_bytes();
    const auto row = [&](const PlacedRows& rows, int cell) {
      return std::span(rows.data + rows.FirstRowOf(cell) * bytes, bytes);
    };
    for (int group = 0; group < groups.groups; ++group) {
      std::vector<Part> terms;
      const int first = groups.first_pairs[group];
      for (int i = first; i < groups.first_pairs[group + 1]; ++i) terms.push_back({0, row(in, groups.pairs[i].from)});
      SumParts(terms, row(out, groups.pairs[first].to), shape.type);
    }
  };
  return StatusOf(on_cpu::Launch(sum, stream), "the sum of cells");
}

}  // namespace moeplan::cuda
