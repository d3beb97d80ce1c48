// How rows are found in the buffers of a task graph, in forms that can be handed to a device: trivially copyable, no
// ownership.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/host_and_device.h"

namespace moeplan {

enum class ElementType { kFloat32, kBfloat16 };

// The rows of a buffer as `blocks` × `cells_per_block` cells. A regular buffer has `rows_per_cell` rows in each.
//
// With `counts`, cells hold as many rows as counts say, packed without gaps; counts are read when the stream gets
// there. Counts are those of all `counted_pieces` of the slots, of each block piece by piece; a buffer holds `pieces`
// of them from `first_piece` on, one after the other, each beginning at a row of its own, as if all cells were full.
// `repeat` consecutive blocks have the same counts.
struct CellLayout {
  int blocks = 1;
  int cells_per_block = 1;
  int rows_per_cell = 0;
  const int32_t* counts = nullptr;
  int repeat = 1;
  int counted_pieces = 1;
  int first_piece = 0, pieces = 1;
};

MOEPLAN_HD inline int CellsOfPiece(const CellLayout& cells) {
  return cells.blocks / cells.pieces * cells.cells_per_block;
}

// How many counts there are for a buffer, those of other pieces included.
inline size_t CountsOf(const CellLayout& cells) {
  return static_cast<size_t>(CellsOfPiece(cells)) / cells.repeat * cells.counted_pieces;
}

MOEPLAN_HD inline int64_t RowsOfCell(const CellLayout& cells, int cell) {
  if (cells.counts == nullptr) return cells.rows_per_cell;
  const int in_piece = cell % CellsOfPiece(cells);
  const int block = in_piece / cells.cells_per_block / cells.repeat;
  const int piece = cells.first_piece + cell / CellsOfPiece(cells);
  return cells
      .counts[(block * cells.counted_pieces + piece) * cells.cells_per_block + in_piece % cells.cells_per_block];
}

MOEPLAN_HD inline int64_t RowsOfBlock(const CellLayout& cells, int block) {
  if (cells.counts == nullptr) return static_cast<int64_t>(cells.cells_per_block) * cells.rows_per_cell;
  int64_t rows = 0;
  for (int cell = 0; cell < cells.cells_per_block; ++cell)
    rows += RowsOfCell(cells, block * cells.cells_per_block + cell);
  return rows;
}

// Where slot `slot` of expert `expert` (of all experts) in source block `block` lies. Strides count cells; an axis that
// the buffer lacks has stride 0 and holds only what the own coordinate says.
struct SlotAddress {
  int experts_per_rank = 1;
  int64_t expert_rank_stride = 0, expert_stride = 0, block_stride = 0, tensor_stride = 0, chunk_stride = 0;
  bool all_tensor = true, all_chunks = true, all_blocks = true;  // Whether the buffer has the axis (or it has size 1).
  int own_tensor = 0, own_chunk = 0, own_block = 0;
  int tensor_parts = 1, chunks = 1;  // Slot = row in the cell · parts + tensor · chunks + chunk.
};

struct SlotPlace {
  int64_t cell = -1;  // -1: not in this buffer.
  int row = 0;        // Within the cell.
};

MOEPLAN_HD inline SlotPlace PlaceOf(const SlotAddress& address, int expert, int block, int slot) {
  const int parts = address.tensor_parts * address.chunks;
  const int tensor = slot % parts / address.chunks;
  const int chunk = slot % address.chunks;
  const bool here = (address.all_tensor || tensor == address.own_tensor) &&
                    (address.all_chunks || chunk == address.own_chunk) &&
                    (address.all_blocks || block == address.own_block);
  if (!here) return {};
  return {expert / address.experts_per_rank * address.expert_rank_stride +
              expert % address.experts_per_rank * address.expert_stride + block * address.block_stride +
              tensor * address.tensor_stride + chunk * address.chunk_stride,
          slot / parts};
}

// How many of `slots` slots, dealt to `chunks` chunks, chunk number `chunk` gets.
MOEPLAN_HD inline int32_t SlotsOfChunk(int32_t slots, int chunks, int chunk) {
  return (slots + chunks - 1 - chunk) / chunks;
}

// One cell of a buffer and the cell of another that belongs to it.
struct CellPair {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace moeplan
