// The host backend's device: as many threads as streams (stream_crew.h), memory from the heap, the machine's monotonic
// clock. Replaying a Recording allocates nothing, unless more runs are queued at a time than ever before, and makes no
// thread.
//
// TimeS is the same clock for every device of a machine, so the timelines of its ranks line up.
#pragma once

#include <functional>
#include <memory>

#include "executor/device.h"

namespace moeplan::executor {

class HostDevice : public Device {
 public:
  // Stops the device with `why` as if work had failed; from any thread.
  virtual void Fail(const Status& why) = 0;
  // Called once, on the failing thread, when the device stops; use it to abort communicators.
  virtual void OnFailure(std::function<void(const Status&)> callback) = 0;
};

std::unique_ptr<HostDevice> MakeHostDevice();

// Heap memory, zeroed, aligned to 64 bytes.
StatusOr<DeviceMemory> AllocateHostMemory(size_t bytes);

}  // namespace moeplan::executor
