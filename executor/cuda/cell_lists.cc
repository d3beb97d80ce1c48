#include "executor/cuda/cell_lists.h"

#include <string_view>

#include "executor/cuda/cell_groups.h"

namespace moeplan::executor::cuda {

StatusOr<const CellPair*> CellLists::Find(std::span<const CellPair> pairs) {
  ASSIGN_OR_RETURN(const std::byte* const list, FindBytes(std::as_bytes(pairs)));
  return reinterpret_cast<const CellPair*>(list);
}

StatusOr<CellGroups> CellLists::FindGroups(std::span<const CellPair> pairs) {
  const std::vector<int32_t> first_pairs = FirstPairsOf(pairs);
  CellGroups groups = {.groups = static_cast<int>(first_pairs.size()) - 1};
  ASSIGN_OR_RETURN(groups.pairs, Find(pairs));
  ASSIGN_OR_RETURN(const std::byte* const firsts, FindBytes(std::as_bytes(std::span(first_pairs))));
  groups.first_pairs = reinterpret_cast<const int32_t*>(firsts);
  return groups;
}

StatusOr<const std::byte*> CellLists::FindBytes(std::span<const std::byte> bytes) {
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto found = lists_.find(content); found != lists_.end()) return found->second.data();
  ASSIGN_OR_RETURN(DeviceMemory memory, device_.Upload(bytes.data(), bytes.size()));
  return lists_.emplace(content, std::move(memory)).first->second.data();
}

}  // namespace moeplan::executor::cuda
