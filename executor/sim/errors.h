// What goes wrong on a simulated cluster, worded once.
#pragma once

#include <cstdint>
#include <string>

#include "models/status.h"
#include "models/text.h"

namespace moeplan::executor::error {

inline Status SecondSimulation() {
  return Unavailable("a simulated cluster: this process has had one, and SimGrid plays one a process; fork first");
}

inline Status OutOfDeviceMemory(int gpu, size_t asked, double used, double all) {
  return Unavailable(StrCat("gpu.deviceMemoryBytes: GPU ", gpu, " was asked for ", asked, " bytes, but of its ", all,
                            " bytes ", used, " are in use; take a smaller layer or more ranks"));
}

inline Status NoAddressSpace(size_t asked) {
  return Unavailable(StrCat("out of memory: cannot reserve ", asked, " bytes of address space; see ulimit -v"));
}

inline Status MoreRanksThanGpus(int ranks, int gpus) {
  return InvalidInput(
      StrCat("ranks: found ", ranks, ", expected at most ", gpus, ", the GPUs of the simulated cluster"));
}

inline Status OtherRanks(int found, int expected) {
  return InvalidInput(StrCat("ranks: found a job of ", found, ", expected ", expected, ", as the simulated one has"));
}

inline Status TooFewFiles(uint64_t needed, uint64_t allowed) {
  return Unavailable(StrCat("open files: a simulated job needs ", needed, ", but ulimit -Hn is ", allowed,
                            "; raise it, or simulate fewer GPUs"));
}

inline Status CannotStartThread(int rank, const std::string& why) {
  return Unavailable(StrCat("cannot start a thread for rank ", rank, " (", why, "); see ulimit -u"));
}

}  // namespace moeplan::executor::error
