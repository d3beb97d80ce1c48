// Streams beside one of the caller's, for kernels that need nothing of each other and are too small for a card alone.
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "executor/cuda/errors.h"

namespace moeplan::executor::cuda {

// Lane 0 is the caller's stream; the others have its priority. Driven by its device's thread; may be captured.
class SideStreams {
 public:
  static constexpr int kLanes = 4;

  explicit SideStreams(cudaStream_t stream) : lanes_{stream} {}
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;
  ~SideStreams() {
    for (int lane = 1; lane < kLanes; ++lane) {
      if (lanes_[lane] != nullptr) cudaStreamDestroy(lanes_[lane]);
    }
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }

  Status Init() {
    int priority = 0;
    RETURN_IF_ERROR(StatusOf(cudaStreamGetPriority(lanes_[0], &priority), "a stream's priority"));
    for (int lane = 0; lane < kLanes; ++lane) {
      RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(&events_[lane], cudaEventDisableTiming), "an event"));
      if (lane == 0) continue;
      RETURN_IF_ERROR(
          StatusOf(cudaStreamCreateWithPriority(&lanes_[lane], cudaStreamNonBlocking, priority), "a stream"));
    }
    return OkStatus();
  }

  cudaStream_t operator[](int lane) const { return lanes_[lane]; }

  // What is queued next on the first `lanes` of them begins behind all that the caller's stream has had queued.
  Status Fork(int lanes) {
    RETURN_IF_ERROR(StatusOf(cudaEventRecord(events_[0], lanes_[0]), "an event"));
    for (int lane = 1; lane < lanes; ++lane) {
      RETURN_IF_ERROR(StatusOf(cudaStreamWaitEvent(lanes_[lane], events_[0], 0), "a wait"));
    }
    return OkStatus();
  }
  // What the caller's stream gets next begins behind all that they have had queued.
  Status Join(int lanes) {
    for (int lane = 1; lane < lanes; ++lane) {
      RETURN_IF_ERROR(StatusOf(cudaEventRecord(events_[lane], lanes_[lane]), "an event"));
      RETURN_IF_ERROR(StatusOf(cudaStreamWaitEvent(lanes_[0], events_[lane], 0), "a wait"));
    }
    return OkStatus();
  }

 private:
  std::array<cudaStream_t, kLanes> lanes_ = {};
  std::array<cudaEvent_t, kLanes> events_ = {};  // Of lane 0: the fork.
};

}  // namespace moeplan::executor::cuda
