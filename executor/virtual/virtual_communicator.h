// The groups of a virtual job and the communicators its ranks use them by.
//
// A rank's place in a group exists from its Split on; the group itself when all its ranks have split.
#pragma once

#include <memory>
#include <vector>

#include "executor/communicator.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan::executor {

// Owns every group of a job, so that communicators may be dropped while work on them is queued.
class VirtualGroups {
 public:
  virtual ~VirtualGroups() = default;
  // The communicators of all devices of `job`, by rank. They borrow from this and from the job.
  virtual std::vector<std::unique_ptr<Communicator>> MakeWorld(VirtualJob& job) = 0;
};

std::unique_ptr<VirtualGroups> MakeVirtualGroups();

}  // namespace moeplan::executor
