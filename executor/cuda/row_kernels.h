// Rows of tokens to slots and back (executor/kernels.h: Dispatch, Combine and their mirrors), as kernels on a CUDA
// stream.
//
// All pointers are device memory that must live until the stream has passed. Sums are in float in the order of a
// token's choices, each product rounded by itself, so that results have the bits of the host kernels; RoutingGradient
// alone sums over a row in an order of its own, which is the same at every call. Nothing here waits for the device. The
// status is that of launches: what fails while they run, the stream says.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

// first_rows[CellCount(cells) + 1], from the counts.
Status FindFirstRows(const CellLayout& cells, int64_t* first_rows, cudaStream_t stream);

// The pairs of a routing that a kernel is about: of `blocks` source batches from `first_block` on, with `choices` a
// row.
struct RoutedPairs {
  Routing routing;
  int choices = 1;
  int first_block = 0, blocks = 1;
  int rows_per_block = 0, valid_rows = 0;

  MOEPLAN_HD int64_t FirstPair() const { return static_cast<int64_t>(first_block) * rows_per_block * choices; }
  MOEPLAN_HD int64_t Rows() const { return static_cast<int64_t>(blocks) * rows_per_block; }
  MOEPLAN_HD int64_t Pairs() const { return Rows() * choices; }
};

// places[i] is the row of `slots` that holds the i-th pair of `pairs`, or -1: dropped, elsewhere, or of no valid row.
// Unless null, `sources`, [MostRows(slots.cells)], gets the way back: sources[places[i]] = i. What it has for rows that
// are no pair's stays as it was.
Status FindPlaces(const RoutedPairs& pairs, const PlacedRows& slots, const SlotAddress& address, int32_t* places,
                  int32_t* sources, cudaStream_t stream);

// What the kernels below share: rows of tokens beside rows of slots, tied by the places that FindPlaces found.
struct TokensAndSlots {
  RowShape shape;
  RoutedPairs pairs;
  const int32_t* places = nullptr;
  const int32_t* sources = nullptr;  // For ScatterRows alone.
  std::byte* tokens = nullptr;       // The first row of the first block of `pairs`.
  PlacedRows slots;

  // Whether a row of slots is some pair's. Nobody cleared `sources`: whatever it has for the row, a pair that is placed
  // elsewhere is not the row's.
  MOEPLAN_HD bool IsFilled(int64_t slot_row) const {
    const int64_t pair = sources[slot_row];
    return pair >= 0 && pair < pairs.Pairs() && places[pair] == slot_row;
  }
};

// To the slots of each token's pairs its row, times the pair's weight where `weighted`; zeros to rows that are no
// pair's. Reads a token once, for all of its slots: these lie far apart, so that a row read anew for each of them would
// mostly come from memory again.
Status ScatterRows(const TokensAndSlots& rows, bool weighted, cudaStream_t stream);

// To each token the sum over its pairs of their slots, times their weights where `weighted`, begun at its row of
// `addend` unless that is null; zeros to rows that are not valid.
Status GatherRows(const TokensAndSlots& rows, bool weighted, const std::byte* addend, cudaStream_t stream);

// gradient[i]: the product of the token and the slot of the i-th pair, 0 where it has no slot here.
Status RoutingGradient(const TokensAndSlots& rows, float* gradient, cudaStream_t stream);

}  // namespace moeplan::executor::cuda
