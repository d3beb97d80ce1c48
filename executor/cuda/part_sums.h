// Sums of parts on a card, in their order.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "executor/cuda/cuda_device.h"
#include "executor/rows.h"

namespace moeplan::executor::cuda {

class PartSums {
 public:
  explicit PartSums(CudaDevice& device) : device_(device) {}

  // out[g] = the sum of the g-th `terms` parts in a row of `in`; all parts have out.size() / groups bytes. In float, in
  // their order, rounded once. Requires that `groups` cuts `out` into whole elements.
  Status Add(std::span<const std::byte> in, std::span<std::byte> out, int groups, int terms, ElementType type,
             Stream& stream);
  // Memory for `bytes`, the same at each call for as many, never freed before this: recordings may have it.
  StatusOr<std::span<std::byte>> Scratch(size_t bytes);

 private:
  struct Shape {
    int groups, terms;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  StatusOr<const DeviceMemory*> PairsOf(const Shape& shape);

  CudaDevice& device_;
  std::map<Shape, DeviceMemory> pairs_;
  std::vector<DeviceMemory> scratch_;
};

}  // namespace moeplan::executor::cuda
