// How ranks that cannot talk yet get what NCCL needs to connect them: rank 0's bytes, through whatever the launcher
// has.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "executor/communicator.h"
#include "executor/device.h"

namespace moeplan::executor::cuda {

// `own` counts on rank 0 alone and has the same length on all ranks; the answer is rank 0's. Collective; blocks.
using ShareBytes = std::function<StatusOr<std::vector<std::byte>>(std::vector<std::byte> own)>;

// Over the ranks of `world`, such as a host rank's, whose device is `device`. Both are borrowed and stand still
// meanwhile.
ShareBytes ShareOver(Communicator& world, Device& device);

// Through a file that all ranks see, by a name that no other job has had. It stays.
ShareBytes ShareThroughFile(std::string path, int rank, double deadline_s);

}  // namespace moeplan::executor::cuda
