// The task that a rank queues work for, as profilers show it: an NVTX range on the thread that drives a device, where
// the toolkit has NVTX's headers.
#pragma once

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MOEPLAN_HAVE_NVTX
#endif

namespace moeplan::executor::cuda {

class TaskRange {
 public:
  TaskRange() = default;
  TaskRange(const TaskRange&) = delete;
  TaskRange& operator=(const TaskRange&) = delete;
  ~TaskRange() { End(); }

  // Ends the one before.
  void Begin([[maybe_unused]] const std::string& task) {
    End();
#ifdef MOEPLAN_HAVE_NVTX
    nvtxRangePushA(task.c_str());
#endif
    begun_ = true;
  }

  void End() {
#ifdef MOEPLAN_HAVE_NVTX
    if (begun_) nvtxRangePop();
#endif
    begun_ = false;
  }

 private:
  bool begun_ = false;
};

}  // namespace moeplan::executor::cuda
