#include "executor/cuda/bias_kernels.h"

#include <algorithm>

#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

// A block has so many columns and as many threads for each of them as are left, which share out rows.
constexpr int kColumns = 32, kThreadsOfColumn = kThreads / kColumns;

template <typename Element>
__global__ void AddKernel(const __grid_constant__ BiasRows args, const float* biases, bool overwrites,
                          ItemLaunch launch) {
  for (int item = static_cast<int>(blockIdx.y); item < args.count; item += static_cast<int>(gridDim.y)) {
    const auto [cell, expert] = args.experts.pairs[item];
    const int64_t values = RowsOfCell(args.rows.cells, cell) * args.columns;
    Element* const rows = reinterpret_cast<Element*>(args.rows.data) + args.rows.FirstRowOf(cell) * args.stride;
    const float* const bias = biases == nullptr ? nullptr : biases + static_cast<int64_t>(expert) * args.columns;
    for (int64_t i = launch.FirstAccess(blockIdx.x, threadIdx.x); i < values; i += launch.AccessStride()) {
      const int64_t column = i % args.columns;
      Element& element = rows[i / args.columns * args.stride + column];
      const float before = overwrites ? 0 : ValueOf(element);
      element = ElementOf<Element>(before + (bias == nullptr ? 0 : bias[column]));
    }
  }
}

template <typename Element>
__global__ void GradientKernel(const __grid_constant__ BiasRows args, float scale, float* gradients) {
  __shared__ float parts[kThreadsOfColumn][kColumns];
  const int x = static_cast<int>(threadIdx.x) % kColumns, y = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(blockIdx.x) * kColumns + x;
  const auto* const data = reinterpret_cast<const Element*>(args.rows.data) + column;
  for (int group = static_cast<int>(blockIdx.y); group < args.experts.groups; group += static_cast<int>(gridDim.y)) {
    const int first = args.experts.first_pairs[group], end = args.experts.first_pairs[group + 1];
    float sum = 0;
    for (int pair = first; pair < end && column < args.columns; ++pair) {
      const int cell = args.experts.pairs[pair].from;
      const int64_t first_row = args.rows.FirstRowOf(cell), rows = RowsOfCell(args.rows.cells, cell);
      for (int64_t row = y; row < rows; row += kThreadsOfColumn) sum += ValueOf(data[(first_row + row) * args.stride]);
    }
    parts[y][x] = sum;
    __syncthreads();
    if (y == 0 && column < args.columns) {
      float all = 0;
      for (int i = 0; i < kThreadsOfColumn; ++i) all += parts[i][x];
      gradients[static_cast<int64_t>(args.experts.pairs[first].to) * args.columns + column] += scale * all;
    }
    __syncthreads();
  }
}

template <typename Element>
__global__ void StoreKernel(const float* values, int64_t count, Element* elements) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    elements[i] = ElementOf<Element>(values[i]);
  }
}

__global__ void AddValuesKernel(const float* from, int64_t count, float* to) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) to[i] += from[i];
}

// Calls function(Element{}).
template <typename Function>
void ForType(ElementType type, Function function) {
  type == ElementType::kFloat32 ? function(float{}) : function(Bfloat16{});
}

}  // namespace

Status AddBias(const BiasRows& args, const float* biases, bool overwrites, cudaStream_t stream) {
  const ItemLaunch launch =
      LaunchOfItems(args.count, static_cast<int64_t>(args.rows.cells.rows_per_cell) * args.columns);
  if (launch.blocks_x == 0) return OkStatus();
  ForType(args.type, [&]<typename Element>(Element) {
    Start(AddKernel<Element>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, args, biases, overwrites,
          launch);
  });
  return LaunchStatus("the biases of experts");
}

Status AddBiasGradient(const BiasRows& args, float scale, float* gradients, cudaStream_t stream) {
  const TileLaunch launch = LaunchOfTiles(args.columns, std::min(args.experts.groups, kMaxGridY), kColumns, 1);
  if (launch.blocks_x == 0) return OkStatus();
  ForType(args.type, [&]<typename Element>(Element) {
    Start(GradientKernel<Element>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, args, scale, gradients);
  });
  return LaunchStatus("the gradients of biases");
}

Status AddValues(const float* from, int64_t count, float* to, cudaStream_t stream) {
  const RowLaunch launch = LaunchOfRows(count, 1);
  if (launch.blocks == 0) return OkStatus();
  Start(AddValuesKernel, {dim3(launch.blocks), kThreads}, stream, from, count, to);
  return LaunchStatus("the gradient of the gate");
}

Status StoreElements(ElementType type, const float* values, int64_t count, std::byte* elements, cudaStream_t stream) {
  const RowLaunch launch = LaunchOfRows(count, 1);
  if (launch.blocks == 0) return OkStatus();
  ForType(type, [&]<typename Element>(Element) {
    Start(StoreKernel<Element>, {dim3(launch.blocks), kThreads}, stream, values, count,
          reinterpret_cast<Element*>(elements));
  });
  return LaunchStatus("the weights of experts");
}

}  // namespace moeplan::executor::cuda
