// Where the cells of a buffer begin, for kernels that the host runs or lays out.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/rows.h"

namespace moeplan::executor {

// The first row of every cell, and behind them the end of the last. Worked out once where no counts change it. Counts
// must be where the host can read them.
class FirstRows {
 public:
  explicit FirstRows(const CellLayout& cells) : cells_(cells), first_(cells.blocks * cells.cells_per_block + 1, 0) {
    if (cells.counts == nullptr) Fill();
  }
  // Reads the counts, where there are any.
  const std::vector<int64_t>& Now() {
    if (cells_.counts != nullptr) Fill();
    return first_;
  }

 private:
  void Fill() {
    const int count = cells_.blocks * cells_.cells_per_block, piece = CellsOfPiece(cells_);
    for (int cell = 0; cell < count; ++cell) {
      if (cells_.counts != nullptr && cell % piece == 0) first_[cell] = FirstRowOfPiece(cells_, cell / piece);
      first_[cell + 1] = first_[cell] + RowsOfCell(cells_, cell);
    }
  }

  CellLayout cells_;
  std::vector<int64_t> first_;
};

}  // namespace moeplan::executor
