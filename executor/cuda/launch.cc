#include "executor/cuda/launch.h"

#include <algorithm>
#include <bit>

#include "models/check.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kWarp = 32;

int64_t Quotient(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

unsigned BlocksFor(int64_t work, int64_t of_a_block) {
  return static_cast<unsigned>(std::min(Quotient(work, of_a_block), kMaxGridX));
}

}  // namespace

int ElementsPerAccess(int element_bytes, size_t row_bytes, std::initializer_list<const void*> rows) {
  const auto is_aligned = [](const void* row) { return reinterpret_cast<uintptr_t>(row) % kAccessBytes == 0; };
  return row_bytes % kAccessBytes == 0 && std::ranges::all_of(rows, is_aligned) ? kAccessBytes / element_bytes : 1;
}

RowLaunch LaunchOfRows(int64_t rows, int accesses_per_row, int of_a_thread) {
  if (rows == 0 || accesses_per_row == 0) return {};
  const int enough = std::max(kWarp, static_cast<int>(Quotient(accesses_per_row, of_a_thread)));
  const auto threads = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::min(enough, accesses_per_row))));
  const int threads_per_row = std::min(threads, kThreads), rows_per_block = kThreads / threads_per_row;
  return {.blocks = BlocksFor(rows, rows_per_block),
          .threads_per_row = threads_per_row,
          .rows_per_block = rows_per_block,
          .accesses_per_row = accesses_per_row};
}

RowLaunch LaunchOfWarps(int64_t rows) {
  constexpr int kRowsPerBlock = kThreads / kWarp;
  return {.blocks = BlocksFor(rows, kRowsPerBlock), .threads_per_row = kWarp, .rows_per_block = kRowsPerBlock};
}

ItemLaunch LaunchOfItems(int items, int64_t accesses) {
  if (items == 0 || accesses == 0) return {};
  return {.blocks_x = BlocksFor(accesses, kThreads * kAccessesPerThread),
          .blocks_y = static_cast<unsigned>(std::min(items, kMaxGridY))};
}

GateLaunch LaunchOfGate(int tokens, int lanes) {
  const int at_a_time = kGateThreads / lanes;
  const int64_t times = std::max<int64_t>(1, Quotient(tokens, int64_t{at_a_time} * kMostGateBlocks));
  const auto tokens_per_block = static_cast<int>(at_a_time * times);
  return {.tokens_per_block = tokens_per_block, .blocks = static_cast<int>(Quotient(tokens, tokens_per_block))};
}

TileLaunch LaunchOfTiles(int64_t rows, int columns, int tile_rows, int tile_columns) {
  if (rows == 0 || columns == 0) return {};
  const int64_t blocks_y = Quotient(columns, tile_columns);
  MOEPLAN_CHECK(blocks_y <= kMaxGridY && Quotient(rows, tile_rows) <= kMaxGridX);
  return {.blocks_x = BlocksFor(rows, tile_rows), .blocks_y = static_cast<unsigned>(blocks_y)};
}

}  // namespace moeplan::executor::cuda
