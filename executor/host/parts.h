// The arithmetic of host collectives, whatever moves the bytes: which bytes of a buffer are for which rank, and sums.
//
// Parts point into the caller's buffers. Pure functions but for what SumParts writes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "executor/communicator.h"
#include "executor/rows.h"

namespace moeplan::executor {

struct Part {
  int peer;
  std::span<std::byte> bytes;
  int index = 0;  // Tells apart several parts for the same peer.
};

// For buffers that are only read but travel as Parts.
std::span<std::byte> Writable(std::span<const std::byte> bytes);

// The rows that go to or come from each rank of a group of `size`. Reads the counts of irregular rows.
std::vector<Part> PartsOf(const PeerRows& rows, int size);

// One part for each transfer; `index` counts those with the same peer.
std::vector<Part> PartsOf(std::span<const Transfer> transfers);

// The same into a list that is used again and keeps its room.
void ListParts(const PeerRows& rows, int size, std::vector<Part>& parts);
void ListParts(std::span<const Transfer> transfers, std::vector<Part>& parts);

// All of `bytes` to each of `size` ranks.
std::vector<Part> SameToAll(std::span<std::byte> bytes, int size);

// `bytes` cut into `size` equal parts.
std::vector<Part> EqualParts(std::span<std::byte> bytes, int size);

// `bytes` cut into parts of whole elements, one for each rank, as even as they come.
std::vector<Part> ElementParts(std::span<std::byte> bytes, ElementType type, int size);

// out = the sum of `parts`, each as long as `out`: added in float in their order, rounded once. `out` may be a part.
void SumParts(std::span<const Part> parts, std::span<std::byte> out, ElementType type);

}  // namespace moeplan::executor
