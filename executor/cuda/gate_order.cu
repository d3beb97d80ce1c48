#include "executor/cuda/gate_order.h"

#include <algorithm>

#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;

// Of the items of a list those that may be taken: all whose key is not below that of the last one taken.
__global__ void CandidatesKernel(OrderedLists lists, int taken, TakenScratch scratch) {
  __shared__ int32_t of_digits[kDigits];
  __shared__ uint32_t shared_threshold;
  __shared__ int32_t left, found;
  const int thread = static_cast<int>(threadIdx.x);
  for (int list = static_cast<int>(blockIdx.x); list < lists.lists; list += static_cast<int>(gridDim.x)) {
    const uint32_t* const keys = lists.keys + list * lists.stride;
    uint32_t known = 0;  // Which digits of the threshold are found.
    if (thread == 0) {
      shared_threshold = 0;
      left = taken;
      found = 0;
    }
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      for (int i = thread; i < kDigits; i += kThreads) of_digits[i] = 0;
      __syncthreads();
      const uint32_t threshold = shared_threshold;
      for (int i = thread; i < lists.items; i += kThreads) {
        if ((keys[i] & known) == threshold) atomicAdd(&of_digits[keys[i] >> shift & (kDigits - 1)], 1);
      }
      __syncthreads();
      if (thread == 0) {
        int digit = kDigits - 1;
        for (; digit > 0 && of_digits[digit] < left; --digit) left -= of_digits[digit];
        shared_threshold = threshold | static_cast<uint32_t>(digit) << shift;
      }
      known |= static_cast<uint32_t>(kDigits - 1) << shift;
      __syncthreads();
    }
    for (int i = thread; i < lists.items; i += kThreads) {
      if (keys[i] >= shared_threshold) scratch.candidates[list * lists.stride + atomicAdd(&found, 1)] = i;
    }
    __syncthreads();
    if (thread == 0) scratch.counts[list] = found;
    __syncthreads();
  }
}

// Calls put(list, item, place) for each of the items, or of the candidates where there are any.
template <typename Put>
__device__ void RankItems(const OrderedLists& lists, const TakenScratch& candidates, Put put) {
  __shared__ uint64_t tile[kThreads];
  for (int list = static_cast<int>(blockIdx.y); list < lists.lists; list += static_cast<int>(gridDim.y)) {
    const bool has_candidates = candidates.candidates != nullptr;
    const int count = has_candidates ? candidates.counts[list] : lists.items;
    const auto item_at = [&](int i) { return has_candidates ? candidates.candidates[list * lists.stride + i] : i; };
    // One number for both: what comes first is the largest.
    const auto rank_of = [&](int item) {
      return static_cast<uint64_t>(lists.keys[list * lists.stride + item]) << 32 | (0xffffffffU - item);
    };
    for (int first = static_cast<int>(blockIdx.x) * kThreads; first < count;
         first += static_cast<int>(gridDim.x) * kThreads) {
      const int own = first + static_cast<int>(threadIdx.x), item = own < count ? item_at(own) : 0;
      const uint64_t rank = rank_of(item);
      int place = 0;
      for (int start = 0; start < count; start += kThreads) {
        const int other = start + static_cast<int>(threadIdx.x);
        tile[threadIdx.x] = other < count ? rank_of(item_at(other)) : 0;
        __syncthreads();
        for (int i = 0; i < kThreads && own < count; ++i) place += tile[i] > rank ? 1 : 0;
        __syncthreads();
      }
      if (own < count) put(list, item, place);
    }
  }
}

__global__ void OrderKernel(OrderedLists lists, int32_t* order) {
  RankItems(lists, {}, [&](int list, int item, int place) { order[list * lists.stride + place] = item; });
}

__global__ void TakenKernel(OrderedLists lists, int taken, Places places, TakenScratch scratch) {
  RankItems(lists, scratch, [&](int list, int item, int place) {
    const int64_t at =
        list / places.lists_of_block * places.block_stride + item * places.item_stride + list % places.lists_of_block;
    places.data[at] = place < taken ? place : -1;
  });
}

Grid GridOf(const OrderedLists& lists, int items) {
  return {dim3((items + kThreads - 1) / kThreads, std::min(lists.lists, kMaxGridY)), kThreads};
}

}  // namespace

void StartOrder(const OrderedLists& lists, int32_t* order, cudaStream_t stream) {
  if (lists.lists > 0 && lists.items > 0) Start(OrderKernel, GridOf(lists, lists.items), stream, lists, order);
}

void StartTaken(const OrderedLists& lists, int taken, const Places& places, const TakenScratch& scratch,
                cudaStream_t stream) {
  if (lists.lists == 0 || taken == 0) return;
  Start(CandidatesKernel, {dim3(lists.lists), kThreads}, stream, lists, taken, scratch);
  // Mostly there are no more candidates than are taken.
  Start(TakenKernel, GridOf(lists, taken), stream, lists, taken, places, scratch);
}

}  // namespace moeplan::executor::cuda
