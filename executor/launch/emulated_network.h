// The network namespaces of emulated nodes, for executor/launch alone: one for each rank, and one with the switches
// between them. They live as long as these descriptors, or a process in them, do.
#pragma once

#include <string>
#include <vector>

#include "executor/launch/launch.h"
#include "executor/owned_fd.h"

namespace moeplan::executor {

struct EmulatedNetwork {
  OwnedFd fabric;
  std::vector<OwnedFd> ranks;
};

// Errors are those of LaunchEmulated.
StatusOr<EmulatedNetwork> MakeEmulatedNetwork(const EmulatedNodes& cluster);

// The address of a rank's NIC, the interface "nic", at which all other ranks reach it.
std::string EmulatedAddress(int rank);

}  // namespace moeplan::executor
