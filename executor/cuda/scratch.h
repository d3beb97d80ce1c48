// Device memory that the kernels of one task pass to each other.
#pragma once

#include <vector>

#include "executor/device.h"

namespace moeplan::executor::cuda {

// For the tasks of one stream, one after the other. What was ever handed out is kept, because recordings may have it;
// a task that takes what it took before gets the same memory, so that only first runs allocate.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  // A task begins: all that was taken may be taken again.
  void Begin();
  // Begins at a multiple of 256 bytes.
  StatusOr<std::byte*> Take(size_t bytes);
  template <typename T>
  StatusOr<T*> TakeValues(size_t count) {
    ASSIGN_OR_RETURN(std::byte* const data, Take(count * sizeof(T)));
    return reinterpret_cast<T*>(data);
  }

 private:
  Device& device_;
  std::vector<DeviceMemory> pieces_;
  size_t piece_ = 0, used_ = 0;  // The piece that is being handed out, and how much of it is gone.
};

}  // namespace moeplan::executor::cuda
