#include <type_traits>

#include "executor/cuda/access.cuh"
#include "executor/cuda/activation_kernels.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"
#include "models/workload/expert_functions.h"

namespace moeplan::executor::cuda {
namespace {

// The place of an access of several columns of "up".
struct Position {
  int expert = 0, column = 0;  // The first column.
  int64_t row = 0;
};

// Calls load(position, held) for every access, then store(position, held); of several accesses the loads come first, as
// the compiler moves none past a store.
template <int kCount, typename Held, typename Load, typename Store>
__device__ void ForEachAccess(const ActivationRows& args, const ItemLaunch& launch, Load load, Store store) {
  constexpr int kAtOnce = 2;
  // A division for each access would cost as much as what is done with some of its values.
  const int accesses_per_row = args.hidden / kCount;
  const int64_t first = launch.FirstAccess(blockIdx.x, threadIdx.x), stride = launch.AccessStride();
  const int64_t first_row = first / accesses_per_row, row_stride = stride / accesses_per_row;
  const int first_access = static_cast<int>(first % accesses_per_row),
            access_stride = static_cast<int>(stride % accesses_per_row);
  for (int item = static_cast<int>(blockIdx.y); item < args.count; item += static_cast<int>(gridDim.y)) {
    const auto [cell, expert] = args.cells[item];
    const int64_t rows = RowsOfCell(args.rows.cells, cell), cell_row = args.rows.FirstRowOf(cell);
    int access = first_access;
    int64_t row = first_row;
    while (row < rows) {
      Held held[kAtOnce];
      Position at[kAtOnce];
      bool is_row[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        at[i] = {expert, access * kCount, cell_row + row};
        is_row[i] = row < rows;
        if (is_row[i]) load(at[i], held[i]);
        access += access_stride;
        row += row_stride;
        if (access >= accesses_per_row) {
          access -= accesses_per_row;
          ++row;
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (is_row[i]) store(at[i], held[i]);
      }
    }
  }
}

// A thread keeps the elements of an access here until it stores what becomes of them.
template <typename Element, int kCount>
struct Loaded {
  Access<Element, kCount> up, gate_up, gradient;
};

// Whether a function is one of limited values.
template <typename Function>
inline constexpr bool kLimits = std::is_same_v<Function, GptOssSwiGlu>;

template <int kCount>
__device__ void AddBias(const float* biases, int64_t first, float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] += biases[first + i];
}

template <typename Function, typename Element, int kCount>
__global__ void ForwardKernel(const __grid_constant__ ActivationRows args,
                              const __grid_constant__ ActivationBiases biases, Element* out, ItemLaunch launch) {
  constexpr bool kGated = Function::kMatrices == 3;
  using Held = Loaded<Element, kCount>;
  const auto up_of = [&](const Position& position) {
    return reinterpret_cast<Element*>(args.rows.data) + position.row * (kGated ? 2 : 1) * args.hidden + position.column;
  };
  const auto load = [&](const Position& position, Held& held) {
    held.up = LoadAccess<kCount>(up_of(position));
    if (kGated) held.gate_up = LoadAccess<kCount>(up_of(position) + args.hidden);
  };
  ForEachAccess<kCount, Held>(args, launch, load, [&](const Position& position, const Held& held) {
    auto* const at = up_of(position);
    const int64_t bias = static_cast<int64_t>(position.expert) * args.hidden + position.column;
    float up[kCount], gate_up[kCount] = {}, hidden[kCount];
    ToValues(held.up, up);
    if (kGated) ToValues(held.gate_up, gate_up);
    if (biases.up != nullptr) {
      AddBias(biases.up, bias, up);
      StoreValues(up, at);
      if (kGated) AddBias(biases.gate_up, bias, gate_up);
      if (kGated) StoreValues(gate_up, at + args.hidden);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      hidden[i] = kLimits<Function> ? Function::Hidden(args.limit.Up(up[i]), args.limit.GateUp(gate_up[i]))
                                    : Function::Hidden(up[i], gate_up[i]);
    }
    StoreValues(hidden, out + position.row * args.hidden + position.column);
  });
}

template <typename Function, typename Element, int kCount>
__global__ void GradientKernel(const __grid_constant__ ActivationRows args, const Element* out_gradient,
                               Element* in_gradient, ItemLaunch launch) {
  constexpr bool kGated = Function::kMatrices == 3;
  using Held = Loaded<Element, kCount>;
  const auto place_of = [&](const Position& position) {
    return position.row * (kGated ? 2 : 1) * args.hidden + position.column;
  };
  const auto load = [&](const Position& position, Held& held) {
    const auto* const in = reinterpret_cast<const Element*>(args.rows.data) + place_of(position);
    held.up = LoadAccess<kCount>(in);
    if (kGated) held.gate_up = LoadAccess<kCount>(in + args.hidden);
    held.gradient = LoadAccess<kCount>(out_gradient + position.row * args.hidden + position.column);
  };
  ForEachAccess<kCount, Held>(args, launch, load, [&](const Position& position, const Held& held) {
    const int64_t at = place_of(position);
    float up[kCount], gate_up[kCount] = {}, gradient[kCount];
    ToValues(held.up, up);
    if (kGated) ToValues(held.gate_up, gate_up);
    ToValues(held.gradient, gradient);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      ExpertSlopes<float> slopes;
      if constexpr (kLimits<Function>) {
        slopes = Function::Slopes(args.limit.Up(up[i]), args.limit.GateUp(gate_up[i]));
        slopes.up *= args.limit.UpSlope(up[i]);
        slopes.gate_up *= args.limit.GateUpSlope(gate_up[i]);
      } else {
        slopes = Function::Slopes(up[i], gate_up[i]);
      }
      up[i] = gradient[i] * slopes.up;
      gate_up[i] = gradient[i] * slopes.gate_up;
    }
    StoreValues(up, in_gradient + at);
    if (kGated) StoreValues(gate_up, in_gradient + at + args.hidden);
  });
}

// Calls function(Function{}, Element{}, elements per access, launch), unless there is nothing to do.
template <typename Launch>
void ForFunction(const ActivationRows& args, const std::byte* other, const std::byte* third, Launch function) {
  const RowShape shape = {.type = args.type, .columns = args.hidden};
  const int elements = ElementsPerAccess(shape.element_bytes(), shape.row_bytes(), {args.rows.data, other, third});
  ForElements(args.type, elements, [&]<typename Element>(Element element, auto count) {
    const int accesses_per_row = args.hidden / decltype(count)::value;
    const ItemLaunch launch =
        LaunchOfItems(args.count, static_cast<int64_t>(args.rows.cells.rows_per_cell) * accesses_per_row);
    if (launch.blocks_x == 0) return;
    if (!args.gated) return function(Gelu{}, element, count, launch);
    args.limit.limit > 0 ? function(GptOssSwiGlu{}, element, count, launch)
                         : function(SwiGlu{}, element, count, launch);
  });
}

}  // namespace

Status Activate(const ActivationRows& args, const ActivationBiases& biases, std::byte* out, cudaStream_t stream) {
  ForFunction(args, out, nullptr,
              [&]<typename Function, typename Element>(Function, Element, auto count, const ItemLaunch& launch) {
                Start(ForwardKernel<Function, Element, decltype(count)::value>,
                      {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, args, biases,
                      reinterpret_cast<Element*>(out), launch);
              });
  return LaunchStatus("the activation of experts");
}

Status ActivationGradient(const ActivationRows& args, const std::byte* out_gradient, std::byte* in_gradient,
                          cudaStream_t stream) {
  ForFunction(args, out_gradient, in_gradient,
              [&]<typename Function, typename Element>(Function, Element, auto count, const ItemLaunch& launch) {
                Start(GradientKernel<Function, Element, decltype(count)::value>,
                      {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream, args,
                      reinterpret_cast<const Element*>(out_gradient), reinterpret_cast<Element*>(in_gradient), launch);
              });
  return LaunchStatus("the gradient of the activation");
}

}  // namespace moeplan::executor::cuda
