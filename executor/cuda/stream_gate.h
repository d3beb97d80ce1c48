// A number in pinned memory that a thread of the host raises and streams wait for: how a stream is held by work of the
// host without a host function that blocks. Raise from any thread, Hold from the one that drives the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/device.h"

namespace moeplan::executor::cuda {

class StreamGate {
 public:
  // kUnimplemented where the driver has no stream memory operations.
  static StatusOr<StreamGate> Make();

  // Holds `stream` until the number has reached `number`, from its start at 0. Numbers go up, by less than 2^31.
  Status Hold(cudaStream_t stream, uint32_t number) const;
  void Raise(uint32_t number);

 private:
  StreamGate() = default;

  DeviceMemory memory_;
  void* wait_ = nullptr;  // The driver's function.
};

}  // namespace moeplan::executor::cuda
