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
                             const __grid_constant__ SlotAddress address, int32_t* places, uint8_t* filled) {
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
    if (filled != nullptr && found >= 0) filled[found] = 1;
  }
}

constexpr int kAtOnce = 4;  // Loads that a thread has under way.

template <typename Element, int kCount, bool kWeighted>
__global__ void ScatterKernel(const __grid_constant__ TokensAndSlots rows, RowLaunch launch) {
  const auto* const tokens = reinterpret_cast<const Element*>(rows.tokens);
  auto* const slots = reinterpret_cast<Element*>(rows.slots.data);
  const int choices = rows.pairs.choices, columns = rows.shape.columns;
  const float* const weights = rows.pairs.routing.weight + rows.pairs.FirstPair();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < rows.pairs.Rows(); row += launch.RowStride()) {
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

template <typename Element, int kCount>
__global__ void ZeroKernel(RowShape shape, const __grid_constant__ PlacedRows slots, const uint8_t* filled,
                           RowLaunch launch) {
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < slots.Rows(); row += launch.RowStride()) {
    if (filled[row] != 0) continue;
    auto* const to = reinterpret_cast<Element*>(slots.data) + row * shape.columns;
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      StoreAccess(Access<Element, kCount>{}, reinterpret_cast<Access<Element, kCount>*>(to) + i);
    }
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
#pragma unroll 4
      for (int i = launch.FirstAccess(threadIdx.x); i < accesses; i += launch.AccessStride()) {
        float a[kCount], b[kCount];
        LoadValues(token + i * kCount, a);
        LoadValues(placed + i * kCount, b);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sum += a[j] * b[j];
      }
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
                  uint8_t* filled, cudaStream_t stream) {
  if (filled != nullptr) {
    RETURN_IF_ERROR(StatusOf(cudaMemsetAsync(filled, 0, MostRows(slots.cells), stream), "the rows to fill"));
  }
  const RowLaunch launch = LaunchOfRows(pairs.Pairs(), 1);
  if (launch.blocks == 0) return OkStatus();
  Start(PlacesKernel, {dim3(launch.blocks), kThreads}, stream, pairs, slots, address, places, filled);
  return LaunchStatus("the places of pairs");
}

Status ScatterRows(const TokensAndSlots& rows, bool weighted, const uint8_t* filled, cudaStream_t stream) {
  ForElements(rows.shape.type, AccessElements(rows), [&]<typename Element>(Element, auto count) {
    constexpr int kCount = decltype(count)::value;
    const int accesses = rows.shape.columns / kCount;
    const RowLaunch tokens = LaunchOfRows(rows.pairs.Rows(), accesses);
    if (tokens.blocks > 0 && weighted) {
      Start(ScatterKernel<Element, kCount, true>, {dim3(tokens.blocks), kThreads}, stream, rows, tokens);
    } else if (tokens.blocks > 0) {
      Start(ScatterKernel<Element, kCount, false>, {dim3(tokens.blocks), kThreads}, stream, rows, tokens);
    }
    const RowLaunch slots = LaunchOfRows(MostRows(rows.slots.cells), accesses);
    if (slots.blocks == 0) return;
    Start(ZeroKernel<Element, kCount>, {dim3(slots.blocks), kThreads}, stream, rows.shape, rows.slots, filled, slots);
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
