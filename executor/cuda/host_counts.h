// The counts of irregular rows, read by the host: the one thing inside a layer that makes it wait for the card.
#pragma once

#include <vector>

#include "executor/communicator.h"
#include "executor/cuda/cuda_device.h"

namespace moeplan::executor::cuda {

class HostCounts {
 public:
  explicit HostCounts(CudaDevice& device) : device_(device) {}
  // The same rows with counts that the host can read, where they have any: as they are when `stream` has passed what is
  // queued on it. Valid until the next call. Blocks where there are counts.
  struct Rows {
    PeerRows send, recv;
  };
  StatusOr<Rows> Read(const PeerRows& send, const PeerRows& recv, Stream& stream);

 private:
  Status Reserve(size_t counts);

  CudaDevice& device_;
  DeviceMemory pinned_;
};

}  // namespace moeplan::executor::cuda
