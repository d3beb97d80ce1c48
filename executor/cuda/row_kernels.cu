#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/row_kernels.h"
#include "executor/cuda/scan.cuh"
#include "executor/cuda/start.cuh"
#include "executor/gate_scores.h"

namespace moeplan::executor::cuda {
namespace {

// A block for each piece: a running sum over its cells, kThreads of them at a time.
__global__ void FirstRowsKernel(const __grid_constant__ CellLayout cells, int64_t* first_rows) {
  const int piece_cells = CellsOfPiece(cells), first_cell = static_cast<int>(blockIdx.x) * piece_cells;
  int64_t before = FirstRowOfPiece(cells, static_cast<int>(blockIdx.x));
  for (int start = 0; start < piece_cells; start += kThreads) {
    const int cell = start + static_cast<int>(threadIdx.x);
    const int64_t rows = cell < piece_cells ? RowsOfCell(cells, first_cell + cell) : 0;
    const RunningSum<int64_t> sum = SumUpToHere(rows);
    if (cell < piece_cells) first_rows[first_cell + cell] = before + sum.up_to_here - rows;
    before += sum.all;
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) first_rows[CellCount(cells)] = before;
}

__global__ void PlacesKernel(const __grid_constant__ RoutedPairs pairs, const __grid_constant__ PlacedRows slots,
                             const __grid_constant__ SlotAddress address, int32_t* places, int32_t* sources) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs.Pairs(); i += stride) {
    const int64_t row = i / pairs.choices, pair = pairs.FirstPair() + i;
    const int block = static_cast<int>(row / pairs.rows_per_block);
    SlotPlace place;
    if (row % pairs.rows_per_block < pairs.valid_rows && pairs.routing.slot[pair] >= 0) {
      place = PlaceOf(address, pairs.routing.expert[pair], pairs.first_block + block, pairs.routing.slot[pair]);
    }
    const int64_t found = place.cell < 0 ? -1 : slots.FirstRowOf(place.cell) + place.row;
    places[i] = static_cast<int32_t>(found);
    if (sources != nullptr && found >= 0) sources[found] = static_cast<int32_t>(i);
  }
}

constexpr int kWarp = 32;
constexpr int kAtOnce = 4;  // Loads that a thread has under way.

// Rows of tokens to their slots.
template <typename Element, int kCount, bool kWeighted>
__device__ void ScatterTokens(const TokensAndSlots& rows, const RowLaunch& launch, unsigned block) {
  const auto* const tokens = reinterpret_cast<const Element*>(rows.tokens);
  auto* const slots = reinterpret_cast<Element*>(rows.slots.data);
  const int choices = rows.pairs.choices, columns = rows.shape.columns;
  const float* const weights = rows.pairs.routing.weight + rows.pairs.FirstPair();
  for (int64_t row = launch.FirstRow(block, threadIdx.x); row < rows.pairs.Rows(); row += launch.RowStride()) {
    const int32_t* const places = rows.places + row * choices;
    bool is_placed = false;
    for (int choice = 0; choice < choices; ++choice) is_placed |= places[choice] >= 0;
    if (!is_placed) continue;
    const auto* const from = reinterpret_cast<const Access<Element, kCount>*>(tokens + row * columns);
    const int stride = launch.AccessStride();
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += kAtOnce * stride) {
      Access<Element, kCount> held[kAtOnce] = {};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * stride < launch.accesses_per_row) held[j] = from[i + j * stride];
      }
      for (int choice = 0; choice < choices; ++choice) {
        if (places[choice] < 0) continue;
        auto* const to =
            reinterpret_cast<Access<Element, kCount>*>(slots + static_cast<int64_t>(places[choice]) * columns);
        const float weight = kWeighted ? weights[row * choices + choice] : 1;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (i + j * stride >= launch.accesses_per_row) continue;
          Access<Element, kCount> stored = held[j];
          if constexpr (kWeighted) {
#pragma unroll
            for (Element& element : stored.elements) element = ElementOf<Element>(ValueOf(element) * weight);
          }
          StoreAccess(stored, to + i + j * stride);
        }
      }
    }
  }
}

// Zeros to the slots that no pair has, a warp for kWarp rows of slots, of which each lane looks at one.
template <typename Element, int kCount>
__device__ void ZeroEmptySlots(const TokensAndSlots& rows, int accesses_per_row, unsigned block, unsigned blocks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  auto* const slots = reinterpret_cast<Access<Element, kCount>*>(rows.slots.data);
  const int64_t end = rows.slots.Rows(), stride = static_cast<int64_t>(blocks) * kThreads;
  for (int64_t first = static_cast<int64_t>(block) * kThreads + threadIdx.x - lane; first < end; first += stride) {
    unsigned empty = __ballot_sync(0xffffffff, first + lane < end && !rows.IsFilled(first + lane));
    for (; empty != 0; empty &= empty - 1) {
      auto* const to = slots + (first + __ffs(empty) - 1) * accesses_per_row;
      for (int i = lane; i < accesses_per_row; i += kWarp) StoreAccess(Access<Element, kCount>{}, to + i);
    }
  }
}

// One kernel for both, so that the few bytes that tell which slots are empty are read while rows are copied.
template <typename Element, int kCount, bool kWeighted>
__global__ void ScatterKernel(const __grid_constant__ TokensAndSlots rows, RowLaunch launch, unsigned zero_blocks) {
  if (blockIdx.x < zero_blocks) {
    ZeroEmptySlots<Element, kCount>(rows, launch.accesses_per_row, blockIdx.x, zero_blocks);
  } else {
    ScatterTokens<Element, kCount, kWeighted>(rows, launch, blockIdx.x - zero_blocks);
  }
}

template <typename Element, int kCount, bool kWeighted>
__global__ void GatherKernel(const __grid_constant__ TokensAndSlots rows, const Element* addend, RowLaunch launch) {
  auto* const tokens = reinterpret_cast<Element*>(rows.tokens);
  const auto* const slots = reinterpret_cast<const Element*>(rows.slots.data);
  const int choices = rows.pairs.choices, columns = rows.shape.columns;
  const float* const weights = rows.pairs.routing.weight + rows.pairs.FirstPair();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < rows.pairs.Rows(); row += launch.RowStride()) {
    const int32_t* const places = rows.places + row * choices;
    const bool has_addend = addend != nullptr && row % rows.pairs.rows_per_block < rows.pairs.valid_rows;
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      float sum[kCount] = {};
      if (has_addend) LoadValues(addend + row * columns + i * kCount, sum);
#pragma unroll 4
      for (int choice = 0; choice < choices; ++choice) {
        if (places[choice] < 0) continue;
        float part[kCount];
        LoadValues(slots + static_cast<int64_t>(places[choice]) * columns + i * kCount, part);
        const float weight = kWeighted ? weights[row * choices + choice] : 1;
#pragma unroll
        for (int j = 0; j < kCount; ++j) sum[j] = kWeighted ? AddProduct(sum[j], weight, part[j]) : sum[j] + part[j];
      }
      StoreValues(sum, tokens + row * columns + i * kCount);
    }
  }
}

template <typename Element, int kCount>
__global__ void ProductKernel(const __grid_constant__ TokensAndSlots rows, float* gradient, RowLaunch launch,
                              int accesses) {
  const int columns = rows.shape.columns, choices = rows.pairs.choices;
  for (int64_t pair = launch.FirstRow(blockIdx.x, threadIdx.x); pair < rows.pairs.Pairs(); pair += launch.RowStride()) {
    const int64_t slot = rows.places[pair];
    float sum = 0;
    if (slot >= 0) {
      const auto* const token = reinterpret_cast<const Element*>(rows.tokens) + pair / choices * columns;
      const auto* const placed = reinterpret_cast<const Element*>(rows.slots.data) + slot * columns;
      sum = ProductOfLane<kCount>(token, placed, launch.FirstAccess(threadIdx.x), accesses, launch.AccessStride());
    }
    sum = SumOfWarp(sum);
    if (launch.FirstAccess(threadIdx.x) == 0) gradient[pair] = sum;
  }
}

int AccessElements(const TokensAndSlots& rows, const std::byte* addend = nullptr) {
  return ElementsPerAccess(rows.shape.element_bytes(), rows.shape.row_bytes(), {rows.tokens, rows.slots.data, addend});
}

}  // namespace

Status FindFirstRows(const CellLayout& cells, int64_t* first_rows, cudaStream_t stream) {
  Start(FirstRowsKernel, {dim3(cells.pieces), kThreads}, stream, cells, first_rows);
  return LaunchStatus("the first rows of cells");
}

Status FindPlaces(const RoutedPairs& pairs, const PlacedRows& slots, const SlotAddress& address, int32_t* places,
                  int32_t* sources, cudaStream_t stream) {
  const RowLaunch launch = LaunchOfRows(pairs.Pairs(), 1);
  if (launch.blocks == 0) return OkStatus();
  Start(PlacesKernel, {dim3(launch.blocks), kThreads}, stream, pairs, slots, address, places, sources);
  return LaunchStatus("the places of pairs");
}

Status ScatterRows(const TokensAndSlots& rows, bool weighted, cudaStream_t stream) {
  ForElements(rows.shape.type, AccessElements(rows), [&]<typename Element>(Element, auto count) {
    constexpr int kCount = decltype(count)::value;
    RowLaunch tokens = LaunchOfRows(rows.pairs.Rows(), rows.shape.columns / kCount);
    tokens.accesses_per_row = rows.shape.columns / kCount;  // Where there are no tokens, too.
    const unsigned zero_blocks = LaunchOfRows(MostRows(rows.slots.cells), 1).blocks;
    const Grid grid = {dim3(zero_blocks + tokens.blocks), kThreads};
    if (grid.blocks.x == 0) return;
    if (weighted) {
      Start(ScatterKernel<Element, kCount, true>, grid, stream, rows, tokens, zero_blocks);
    } else {
      Start(ScatterKernel<Element, kCount, false>, grid, stream, rows, tokens, zero_blocks);
    }
  });
  return LaunchStatus("rows of tokens to slots");
}

Status GatherRows(const TokensAndSlots& rows, bool weighted, const std::byte* addend, cudaStream_t stream) {
  ForElements(rows.shape.type, AccessElements(rows, addend), [&]<typename Element>(Element, auto count) {
    constexpr int kCount = decltype(count)::value;
    const RowLaunch launch = LaunchOfRows(rows.pairs.Rows(), rows.shape.columns / kCount);
    if (launch.blocks == 0) return;
    const auto* const added = reinterpret_cast<const Element*>(addend);
    if (weighted) {
      Start(GatherKernel<Element, kCount, true>, {dim3(launch.blocks), kThreads}, stream, rows, added, launch);
    } else {
      Start(GatherKernel<Element, kCount, false>, {dim3(launch.blocks), kThreads}, stream, rows, added, launch);
    }
  });
  return LaunchStatus("rows of slots to tokens");
}

Status RoutingGradient(const TokensAndSlots& rows, float* gradient, cudaStream_t stream) {
  ForElements(rows.shape.type, AccessElements(rows), [&]<typename Element>(Element, auto count) {
    constexpr int kCount = decltype(count)::value;
    const RowLaunch launch = LaunchOfWarps(rows.pairs.Pairs());
    if (launch.blocks == 0) return;
    Start(ProductKernel<Element, kCount>, {dim3(launch.blocks), kThreads}, stream, rows, gradient, launch,
          rows.shape.columns / kCount);
  });
  return LaunchStatus("the gradient of a routing");
}

}  // namespace moeplan::executor::cuda
