// How CUDA kernels are laid over rows: grids, threads, what a thread takes at a time, shared memory. Pure functions
// and, for host and device, which thread takes what; no CUDA header, so the CPU tests them.
//
// Requires counts and sizes of at least 0; a launch of nothing has no block and is not to be made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "models/host_and_device.h"

namespace moeplan::executor::cuda {

// Of every card that there is: the largest grid in x, and in y and z.
inline constexpr int64_t kMaxGridX = 2147483647;
inline constexpr int kMaxGridY = 65535;
// What a kernel has without asking for more.
inline constexpr size_t kSharedBytes = 48 * 1024;

inline constexpr int kAccessBytes = 16;
inline constexpr int kThreads = 256;

// How many elements a thread takes at a time: 16 bytes of them where every row begins at a multiple of 16 bytes, else
// one.
int ElementsPerAccess(int element_bytes, size_t row_bytes, std::initializer_list<const void*> rows);

// `threads_per_row` neighbouring threads share a row, `rows_per_block` rows a block; what the grid does not cover comes
// round again.
struct RowLaunch {
  unsigned blocks = 0;
  int threads_per_row = 1;
  int rows_per_block = kThreads;
  int accesses_per_row = 0;

  MOEPLAN_HD int64_t FirstRow(unsigned block, unsigned thread) const {
    return static_cast<int64_t>(block) * rows_per_block + static_cast<int>(thread) / threads_per_row;
  }
  MOEPLAN_HD int64_t RowStride() const { return static_cast<int64_t>(blocks) * rows_per_block; }
  MOEPLAN_HD int FirstAccess(unsigned thread) const { return static_cast<int>(thread) % threads_per_row; }
  MOEPLAN_HD int AccessStride() const { return threads_per_row; }
};
inline constexpr int kAccessesPerThread = 4;
// Rows of `accesses_per_row` accesses each, about `of_a_thread` of them a thread.
RowLaunch LaunchOfRows(int64_t rows, int accesses_per_row, int of_a_thread = kAccessesPerThread);
// One warp for each of `rows`, whatever its length: for sums over a row.
RowLaunch LaunchOfWarps(int64_t rows);

// Blocks x over the accesses of an item, blocks y over items; both come round again.
struct ItemLaunch {
  unsigned blocks_x = 0, blocks_y = 0;

  MOEPLAN_HD int64_t FirstAccess(unsigned block_x, unsigned thread) const {
    return static_cast<int64_t>(block_x) * kThreads + thread;
  }
  MOEPLAN_HD int64_t AccessStride() const { return static_cast<int64_t>(blocks_x) * kThreads; }
};
// `items` of at most `accesses` each, such as the cells of a buffer.
ItemLaunch LaunchOfItems(int items, int64_t accesses);

// The gate after its logits: so many tokens a block, a group of lanes for each, several tokens of a group one after the
// other.
struct GateLaunch {
  int tokens_per_block = 0;
  int blocks = 0;
};
inline constexpr int kGateThreads = 128;
// One block of kThreads threads sums up the counts of all blocks, and each of its threads takes at most eight.
inline constexpr int kMostGateBlocks = 8 * kThreads;
// Requires that `lanes` divides the lanes of a warp.
GateLaunch LaunchOfGate(int tokens, int lanes);

// Tiles of a matrix of results.
struct TileLaunch {
  unsigned blocks_x = 0, blocks_y = 0;
};
// Requires that the columns need no more than kMaxGridY tiles.
TileLaunch LaunchOfTiles(int64_t rows, int columns, int tile_rows, int tile_columns);

}  // namespace moeplan::executor::cuda
