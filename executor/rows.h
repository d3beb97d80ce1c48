// How rows are found in the buffers of a task graph, in forms that can be handed to a device: trivially copyable, no
// ownership.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/host_and_device.h"

namespace moeplan::executor {

enum class ElementType { kFloat32, kBfloat16 };

// Chunks of unequal sizes: how many units of the slots come before each, and behind the last chunk their number. Equal
// chunks, of one unit each, need no list of them, and there may be any number.
struct ChunkUnits {
  static constexpr int kMost = 8;
  int chunks = 1;
  bool equal = true;
  int32_t first[kMost + 1] = {};
};
MOEPLAN_HD inline int FirstUnit(const ChunkUnits& units, int chunk) { return units.equal ? chunk : units.first[chunk]; }
MOEPLAN_HD inline int UnitsOf(const ChunkUnits& units, int chunk) {
  return FirstUnit(units, chunk + 1) - FirstUnit(units, chunk);
}
MOEPLAN_HD inline int AllUnits(const ChunkUnits& units) { return FirstUnit(units, units.chunks); }
MOEPLAN_HD inline int ChunkOfUnit(const ChunkUnits& units, int unit) {
  if (units.equal) return unit;
  int chunk = 0;
  while (units.first[chunk + 1] <= unit) ++chunk;
  return chunk;
}

// The rows of a buffer as `blocks` × `cells_per_block` cells. A regular buffer has `rows_per_cell` rows in each or,
// where cells are of different chunks (`chunk_stride` above 0), in each for each unit of its chunk.
//
// With `counts`, cells hold as many rows as counts say, packed without gaps; counts are read when the stream gets
// there. Counts are those of all `counted_pieces` of the slots, of each block piece by piece; a buffer holds `pieces`
// of them from `first_piece` on, one after the other, each beginning at a row of its own, as if all cells were full;
// `units` are theirs.
// `repeat` consecutive blocks have the same counts.
struct CellLayout {
  int blocks = 1;
  int cells_per_block = 1;
  int rows_per_cell = 0;
  const int32_t* counts = nullptr;
  int repeat = 1;
  int counted_pieces = 1;
  int first_piece = 0, pieces = 1;
  int64_t chunk_stride = 0;
  ChunkUnits units;
};

MOEPLAN_HD inline int CellsOfPiece(const CellLayout& cells) {
  return cells.blocks / cells.pieces * cells.cells_per_block;
}

// How many counts there are for a buffer, those of other pieces included.
inline size_t CountsOf(const CellLayout& cells) {
  return static_cast<size_t>(CellsOfPiece(cells)) / cells.repeat * cells.counted_pieces;
}

MOEPLAN_HD inline int64_t RowsOfCell(const CellLayout& cells, int cell) {
  if (cells.counts == nullptr) {
    if (cells.chunk_stride == 0) return cells.rows_per_cell;
    return cells.rows_per_cell * UnitsOf(cells.units, static_cast<int>(cell / cells.chunk_stride % cells.units.chunks));
  }
  const int in_piece = cell % CellsOfPiece(cells);
  const int block = in_piece / cells.cells_per_block / cells.repeat;
  const int piece = cells.first_piece + cell / CellsOfPiece(cells);
  return cells
      .counts[(block * cells.counted_pieces + piece) * cells.cells_per_block + in_piece % cells.cells_per_block];
}

// Where a cell begins if all cells before it are full.
MOEPLAN_HD inline int64_t FirstRowWhenFull(const CellLayout& cells, int64_t cell) {
  if (cells.chunk_stride == 0) return cell * cells.rows_per_cell;
  const int64_t all_chunks = cells.chunk_stride * cells.units.chunks, in_chunks = cell % all_chunks;
  const int chunk = static_cast<int>(in_chunks / cells.chunk_stride);
  const int64_t units = cell / all_chunks * cells.chunk_stride * AllUnits(cells.units) +
                        FirstUnit(cells.units, chunk) * cells.chunk_stride +
                        in_chunks % cells.chunk_stride * UnitsOf(cells.units, chunk);
  return units * cells.rows_per_cell;
}

// Where the cells of a piece of counted rows begin.
MOEPLAN_HD inline int64_t FirstRowOfPiece(const CellLayout& cells, int piece) {
  return static_cast<int64_t>(FirstUnit(cells.units, piece)) * CellsOfPiece(cells) * cells.rows_per_cell;
}

MOEPLAN_HD inline int64_t RowsOfBlock(const CellLayout& cells, int block) {
  if (cells.counts == nullptr && cells.chunk_stride == 0) {
    return static_cast<int64_t>(cells.cells_per_block) * cells.rows_per_cell;
  }
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
  // Slot = n · parts + tensor · units + unit, which is row n · units of its chunk + unit within it.
  int tensor_parts = 1;
  ChunkUnits units;
};

struct SlotPlace {
  int64_t cell = -1;  // -1: not in this buffer.
  int row = 0;        // Within the cell.
};

MOEPLAN_HD inline SlotPlace PlaceOf(const SlotAddress& address, int expert, int block, int slot) {
  const int units = AllUnits(address.units);
  const int parts = address.tensor_parts * units;
  const int tensor = slot % parts / units;
  const int unit = slot % units;
  const int chunk = ChunkOfUnit(address.units, unit);
  const bool here = (address.all_tensor || tensor == address.own_tensor) &&
                    (address.all_chunks || chunk == address.own_chunk) &&
                    (address.all_blocks || block == address.own_block);
  if (!here) return {};
  return {expert / address.experts_per_rank * address.expert_rank_stride +
              expert % address.experts_per_rank * address.expert_stride + block * address.block_stride +
              tensor * address.tensor_stride + chunk * address.chunk_stride,
          slot / parts * UnitsOf(address.units, chunk) + unit - FirstUnit(address.units, chunk)};
}

// How many of `slots` slots, dealt to the units of all chunks, chunk number `chunk` gets.
MOEPLAN_HD inline int32_t SlotsOfChunk(int32_t slots, const ChunkUnits& units, int chunk) {
  const int all = AllUnits(units), own = UnitsOf(units, chunk), left = slots % all - FirstUnit(units, chunk);
  return slots / all * own + (left < 0 ? 0 : left < own ? left : own);
}

// One cell of a buffer and the cell of another that belongs to it.
struct CellPair {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace moeplan::executor
