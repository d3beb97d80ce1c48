// What samples should say of the card they were measured on, and how its clock is brought to that of long work before
// they are.
#pragma once

#include <map>
#include <string>

#include "executor/cuda/cuda_device.h"
#include "executor/cuda/nvml.h"

namespace moeplan::executor::cuda {

// "device" (the card's name), "computeCapability", "cudaRuntime" and "cudaDriver" (versions of CUDA), "memoryBytes",
// "multiprocessors", "l2Bytes", "pciBus", "uuid", and what Nvml::FactsOf tells; "nvml" is "not found" where there is no
// such library. What is not known is absent.
std::map<std::string, std::string> CardFacts(int card, const std::string& nvml_library = kNvmlLibrary);

// Keeps the card of `device` busy until its SM clock stands still (settle_watch.h) or, where NVML does not tell it,
// until the time of equal work does; `limit_s` at most. Blocks. Takes 64 MiB of device memory meanwhile.
Status SettleClocks(CudaDevice& device, double limit_s = 1, const std::string& nvml_library = kNvmlLibrary);

}  // namespace moeplan::executor::cuda
