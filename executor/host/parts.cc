#include "executor/host/parts.h"

#include <algorithm>
#include <array>

#include "executor/host/elements.h"

namespace moeplan::executor {

std::span<std::byte> Writable(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

std::vector<Part> PartsOf(const PeerRows& rows, int size) {
  std::vector<Part> parts;
  ListParts(rows, size, parts);
  return parts;
}

std::vector<Part> PartsOf(std::span<const Transfer> transfers) {
  std::vector<Part> parts;
  ListParts(transfers, parts);
  return parts;
}

void ListParts(const PeerRows& rows, int size, std::vector<Part>& parts) {
  parts.clear();
  std::byte* next = rows.data;
  const int repeat = size / rows.cells.blocks;
  for (int block = 0; block < rows.cells.blocks; ++block) {
    const size_t bytes = RowsOfBlock(rows.cells, block) * rows.row_bytes;
    for (int copy = 0; copy < repeat; ++copy) parts.push_back({block * repeat + copy, {next, bytes}});
    next += bytes;
  }
}

void ListParts(std::span<const Transfer> transfers, std::vector<Part>& parts) {
  parts.clear();
  for (const Transfer& transfer : transfers) {
    const auto before =
        std::find_if(parts.rbegin(), parts.rend(), [&](const Part& part) { return part.peer == transfer.peer; });
    parts.push_back({transfer.peer, transfer.bytes, before == parts.rend() ? 0 : before->index + 1});
  }
}

std::vector<Part> SameToAll(std::span<std::byte> bytes, int size) {
  std::vector<Part> parts;
  for (int peer = 0; peer < size; ++peer) parts.push_back({peer, bytes});
  return parts;
}

std::vector<Part> EqualParts(std::span<std::byte> bytes, int size) {
  const size_t part_bytes = bytes.size() / size;
  std::vector<Part> parts;
  for (int peer = 0; peer < size; ++peer) parts.push_back({peer, bytes.subspan(part_bytes * peer, part_bytes)});
  return parts;
}

std::vector<Part> ElementParts(std::span<std::byte> bytes, ElementType type, int size) {
  const size_t elements = bytes.size() / BytesOf(type);
  std::vector<Part> parts;
  for (int peer = 0; peer < size; ++peer) {
    const size_t first = elements * peer / size, last = elements * (peer + 1) / size;
    parts.push_back({peer, bytes.subspan(first * BytesOf(type), (last - first) * BytesOf(type))});
  }
  return parts;
}

void SumParts(std::span<const Part> parts, std::span<std::byte> out, ElementType type) {
  constexpr size_t kElementsAtOnce = 2048;
  std::array<float, kElementsAtOnce> sum;
  const size_t count = out.size() / BytesOf(type);
  for (size_t first = 0; first < count; first += kElementsAtOnce) {
    const size_t elements = std::min(count - first, kElementsAtOnce), offset = first * BytesOf(type);
    std::fill_n(sum.data(), elements, 0.0F);
    for (const Part& part : parts) Accumulate(part.bytes.data() + offset, type, elements, sum.data());
    Store(sum.data(), type, elements, out.data() + offset);
  }
}

}  // namespace moeplan::executor
