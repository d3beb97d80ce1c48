// How a host waits for what cannot wake it: it looks closely at first, as most of what is waited for ends soon.
#pragma once

#include <chrono>
#include <thread>

#include "executor/host/spin.h"

namespace moeplan::executor::cuda {

class Patience {
 public:
  void Rest() {
    constexpr int kLooks = 256;
    if (++looks_ < kLooks) return PauseProcessor();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  int looks_ = 0;
};

}  // namespace moeplan::executor::cuda
