#include "executor/cuda/access.cuh"
#include "executor/cuda/cell_kernels.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

template <typename Element, int kCount>
__global__ void CopyKernel(RowShape shape, const __grid_constant__ PlacedRows in,
                           const __grid_constant__ PlacedRows out, const CellPair* pairs, int count,
                           ItemLaunch launch) {
  using Taken = Access<Element, kCount>;
  for (int item = static_cast<int>(blockIdx.y); item < count; item += static_cast<int>(gridDim.y)) {
    const CellPair pair = pairs[item];
    const int64_t accesses = RowsOfCell(in.cells, pair.from) * (shape.columns / kCount);
    const auto* const from = reinterpret_cast<const Taken*>(reinterpret_cast<const Element*>(in.data) +
                                                            in.FirstRowOf(pair.from) * shape.columns);
    auto* const to =
        reinterpret_cast<Taken*>(reinterpret_cast<Element*>(out.data) + out.FirstRowOf(pair.to) * shape.columns);
    CopyAccesses(from, to, launch.FirstAccess(blockIdx.x, threadIdx.x), accesses, launch.AccessStride());
  }
}

template <typename Element, int kCount>
__global__ void SumKernel(RowShape shape, const __grid_constant__ PlacedRows in, const __grid_constant__ PlacedRows out,
                          const __grid_constant__ CellGroups groups, ItemLaunch launch) {
  for (int group = static_cast<int>(blockIdx.y); group < groups.groups; group += static_cast<int>(gridDim.y)) {
    const int first = groups.first_pairs[group], end = groups.first_pairs[group + 1];
    const int target = groups.pairs[first].to;
    const int64_t accesses = RowsOfCell(out.cells, target) * (shape.columns / kCount);
    auto* const to = reinterpret_cast<Element*>(out.data) + out.FirstRowOf(target) * shape.columns;
    for (int64_t i = launch.FirstAccess(blockIdx.x, threadIdx.x); i < accesses; i += launch.AccessStride()) {
      float sum[kCount] = {};
#pragma unroll 4
      for (int pair = first; pair < end; ++pair) {
        const auto* const from =
            reinterpret_cast<const Element*>(in.data) + in.FirstRowOf(groups.pairs[pair].from) * shape.columns;
        float part[kCount];
        LoadValues(from + i * kCount, part);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sum[j] += part[j];
      }
      StoreValues(sum, to + i * kCount);
    }
  }
}

ItemLaunch LaunchOfCells(int items, const CellLayout& cells, int accesses_per_row) {
  return LaunchOfItems(items, static_cast<int64_t>(cells.rows_per_cell) * accesses_per_row);
}

}  // namespace

Status CopyCells(const RowShape& shape, const PlacedRows& in, const PlacedRows& out, const CellPair* pairs, int count,
                 cudaStream_t stream) {
  const int elements = ElementsPerAccess(shape.element_bytes(), shape.row_bytes(), {in.data, out.data});
  ForElements(shape.type, elements, [&]<typename Element>(Element, auto per_access) {
    constexpr int kCount = decltype(per_access)::value;
    const ItemLaunch launch = LaunchOfCells(count, in.cells, shape.columns / kCount);
    if (launch.blocks_x == 0) return;
    Start(CopyKernel<Element, kCount>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, shape, in, out,
          pairs, count, launch);
  });
  return LaunchStatus("the copy of cells");
}

Status SumCells(const RowShape& shape, const PlacedRows& in, const PlacedRows& out, const CellGroups& groups,
                cudaStream_t stream) {
  const int elements = ElementsPerAccess(shape.element_bytes(), shape.row_bytes(), {in.data, out.data});
  ForElements(shape.type, elements, [&]<typename Element>(Element, auto per_access) {
    constexpr int kCount = decltype(per_access)::value;
    const ItemLaunch launch = LaunchOfCells(groups.groups, out.cells, shape.columns / kCount);
    if (launch.blocks_x == 0) return;
    Start(SumKernel<Element, kCount>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, shape, in, out,
          groups, launch);
  });
  return LaunchStatus("the sum of cells");
}

}  // namespace moeplan::executor::cuda
