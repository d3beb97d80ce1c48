// The memory of simulated GPUs: address space that costs nothing until somebody writes to it.
//
// Each GPU has `device_memory_bytes`. Where jobs carry no data, memory is a place that has a size, but for what is
// known to hold data: the counts and sums that the host reads. One thread, or several of which one runs at a time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "executor/device.h"
#include "models/status.h"

namespace moeplan::executor {

class SimMemory {
 public:
  SimMemory(int gpus, double device_memory_bytes, bool data);

  // kUnavailable where the GPU has not that much left.
  StatusOr<DeviceMemory> Allocate(int gpu, size_t bytes);
  // As VirtualMachine's.
  bool HoldsData(const std::byte* place) const;
  void SetHoldsData(const std::byte* place);

 private:
  struct Region {
    size_t bytes = 0;
    bool holds_data = false;
  };
  // Shared with what was allocated, which gives its room back.
  struct Books {
    std::vector<double> used_bytes;  // By GPU.
    std::map<const std::byte*, Region> regions;
  };
  Region* RegionOf(const std::byte* place) const;

  const double device_memory_bytes_;
  const bool data_;
  const std::shared_ptr<Books> books_ = std::make_shared<Books>();
};

}  // namespace moeplan::executor
