// What makes the sources of CUDA kernels C++ for the CPU, where every thread of every block runs: for correctness
// alone. Nothing is to be learned of time, nor of races between blocks, which come one after the other. An access at an
// address that its alignment does not allow ends the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
// Blocks run one after the other, and the threads of a block share what is static.
#define __shared__ static
#define __launch_bounds__(...)

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;

  dim3() = default;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT(google-explicit-constructor)
};

// Of the thread that is running.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace moeplan::on_cpu {

// Every thread of every block; they take turns where they wait for each other. One kernel at a time.
void Run(dim3 blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel);

std::byte* DynamicSharedMemory();
void WaitForBlock();
// What every lane of this warp gave, in the order of lanes; those that have ended give 0.
const uint64_t* WaitForWarp(uint64_t value);

template <typename T>
T FromLane(T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  std::memcpy(&value, WaitForWarp(bits) + lane, sizeof value);
  return value;
}

}  // namespace moeplan::on_cpu

inline void __syncthreads() { moeplan::on_cpu::WaitForBlock(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return moeplan::on_cpu::FromLane(value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  return moeplan::on_cpu::FromLane(value, static_cast<int>(threadIdx.x % 32) / width * width + lane % width);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return moeplan::on_cpu::FromLane(value, lane < lanes ? lane : lane - lanes);
}
inline void __syncwarp() { moeplan::on_cpu::WaitForWarp(0); }
inline unsigned __ballot_sync(unsigned, bool given) {
  const uint64_t* const all = moeplan::on_cpu::WaitForWarp(given ? 1 : 0);
  unsigned lanes = 0;
  for (int lane = 0; lane < 32; ++lane) lanes |= static_cast<unsigned>(all[lane]) << lane;
  return lanes;
}
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline unsigned __match_any_sync(unsigned, int value) {
  // With a mark, so that it differs from what lanes give that have ended.
  const uint64_t own = (uint64_t{1} << 32) | static_cast<uint32_t>(value);
  const uint64_t* const all = moeplan::on_cpu::WaitForWarp(own);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) same |= (all[lane] == own ? 1U : 0U) << lane;
  return same;
}
inline int32_t atomicAdd(int32_t* sum, int32_t value) { return std::exchange(*sum, *sum + value); }
inline int32_t atomicMax(int32_t* most, int32_t value) { return std::exchange(*most, std::max(*most, value)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
using std::max;
using std::min;
inline int64_t min(int64_t a, int b) { return std::min<int64_t>(a, b); }
