// The slot rows of a buffer as device code finds them: cells, and where each begins.
#pragma once

#include <cstdint>

#include "executor/kernels.h"

namespace moeplan::executor::cuda {

// What rows of tokens and slots are made of.
struct RowShape {
  ElementType type = ElementType::kFloat32;
  int columns = 0;

  int element_bytes() const { return type == ElementType::kFloat32 ? 4 : 2; }
  size_t row_bytes() const { return static_cast<size_t>(columns) * element_bytes(); }
};

MOEPLAN_HD inline int CellCount(const CellLayout& cells) { return cells.blocks * cells.cells_per_block; }
// As if all cells were full: what a buffer has room for.
MOEPLAN_HD inline int64_t MostRows(const CellLayout& cells) { return FirstRowWhenFull(cells, CellCount(cells)); }

struct PlacedRows {
  std::byte* data = nullptr;
  CellLayout cells;
  // Device memory: the first row of each cell and, behind them, the end of the last (FindFirstRows). Null without
  // counts.
  const int64_t* first_rows = nullptr;

  MOEPLAN_HD int64_t FirstRowOf(int64_t cell) const {
    return cells.counts == nullptr ? FirstRowWhenFull(cells, cell) : first_rows[cell];
  }
  MOEPLAN_HD int64_t Rows() const { return FirstRowOf(CellCount(cells)); }
};

}  // namespace moeplan::executor::cuda
