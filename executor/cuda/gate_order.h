// Scores put in order, on a CUDA stream: the largest first, ties to the lower item (OrderOf, executor/gate_draws.h).
// What comes out does not depend on how threads come along.
//
// Work grows with the square of how many items are put in order, of a list or, where only some are taken, of these.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace moeplan::executor::cuda {

// Lists that lie so far apart, of numbers in the order of scores.
struct OrderedLists {
  const uint32_t* keys = nullptr;  // [lists][stride]
  int lists = 0, items = 0;
  int64_t stride = 0;
};

// order[list · stride + place] becomes the item at that place.
void StartOrder(const OrderedLists& lists, int32_t* order, cudaStream_t stream);

// Where the place of an item is written: lists are parts of blocks, and neighbours there.
struct Places {
  int32_t* data = nullptr;
  int lists_of_block = 1;
  int64_t block_stride = 0, item_stride = 0;
};
struct TakenScratch {
  int32_t* candidates = nullptr;  // [lists][stride]
  int32_t* counts = nullptr;      // [lists]
};
// The place of each of the `taken` first items of a list; all other places stay as they are or become -1. Requires
// that `taken` is at most the number of items.
void StartTaken(const OrderedLists& lists, int taken, const Places& places, const TakenScratch& scratch,
                cudaStream_t stream);

}  // namespace moeplan::executor::cuda
