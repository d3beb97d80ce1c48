#include "executor/cuda/part_sums.h"

#include <cstring>
#include <limits>

#include "executor/cuda/cell_groups.h"
#include "executor/cuda/cell_kernels.h"
#include "executor/host/elements.h"
#include "models/text.h"

namespace moeplan::executor::cuda {

Status PartSums::Add(std::span<const std::byte> in, std::span<std::byte> out, int groups, int terms, ElementType type,
                     Stream& stream) {
  const size_t elements = out.size() / groups / BytesOf(type);
  if (elements == 0) return OkStatus();
  if (elements > static_cast<size_t>(std::numeric_limits<int>::max()))
    return Unimplemented(StrCat("a sum of parts of ", elements, " elements; at most 2147483647 are possible"));
  ASSIGN_OR_RETURN(const DeviceMemory* pairs, PairsOf({groups, terms}));
  const int count = groups * terms;
  const auto cells = [](int cells) { return CellLayout{.cells_per_block = cells, .rows_per_cell = 1}; };
  const PlacedRows from = {.data = const_cast<std::byte*>(in.data()), .cells = cells(count)};
  const PlacedRows to = {.data = out.data(), .cells = cells(groups)};
  const CellGroups of_out = {
      .pairs = reinterpret_cast<const CellPair*>(pairs->data()),
      .first_pairs = reinterpret_cast<const int32_t*>(pairs->data() + static_cast<size_t>(count) * sizeof(CellPair)),
      .groups = groups};
  return SumCells({type, static_cast<int>(elements)}, from, to, of_out, StreamOf(stream));
}

StatusOr<std::span<std::byte>> PartSums::Scratch(size_t bytes) {
  for (const DeviceMemory& memory : scratch_) {
    if (memory.bytes() >= bytes) return std::span(memory.data(), bytes);
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, device_.Allocate(bytes));
  scratch_.push_back(std::move(memory));
  return std::span(scratch_.back().data(), bytes);
}

StatusOr<const DeviceMemory*> PartSums::PairsOf(const Shape& shape) {
  if (const auto found = pairs_.find(shape); found != pairs_.end()) return &found->second;
  std::vector<CellPair> pairs;
  for (int i = 0; i < shape.groups * shape.terms; ++i) pairs.push_back({i, i / shape.terms});
  const std::vector<int32_t> first_pairs = FirstPairsOf(pairs);
  const size_t pair_bytes = pairs.size() * sizeof(CellPair);
  std::vector<std::byte> bytes(pair_bytes + first_pairs.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), pairs.data(), pair_bytes);
  std::memcpy(bytes.data() + pair_bytes, first_pairs.data(), first_pairs.size() * sizeof(int32_t));
  ASSIGN_OR_RETURN(DeviceMemory memory, device_.Upload(bytes.data(), bytes.size()));
  return &pairs_.emplace(shape, std::move(memory)).first->second;
}

}  // namespace moeplan::executor::cuda
