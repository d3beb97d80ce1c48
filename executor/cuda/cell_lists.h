// Lists of cells on the card. Each is there once, however often and under whatever address a graph names it.
#pragma once

#include <map>
#include <span>
#include <string>

#include "executor/cuda/cell_kernels.h"
#include "executor/cuda/cuda_device.h"

namespace moeplan::executor::cuda {

// What is handed out lives as long as this: recordings may have it. One thread, that of the device.
class CellLists {
 public:
  explicit CellLists(CudaDevice& device) : device_(device) {}

  // Uploads what is not there yet, which blocks.
  StatusOr<const CellPair*> Find(std::span<const CellPair> pairs);
  // Of pairs that are grouped by `to`.
  StatusOr<CellGroups> FindGroups(std::span<const CellPair> pairs);

 private:
  StatusOr<const std::byte*> FindBytes(std::span<const std::byte> bytes);

  CudaDevice& device_;
  std::map<std::string, DeviceMemory, std::less<>> lists_;  // By content.
};

}  // namespace moeplan::executor::cuda
