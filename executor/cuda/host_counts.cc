#include "executor/cuda/host_counts.h"

#include <algorithm>

#include "executor/cuda/errors.h"
#include "executor/cuda/machine_errors.h"

namespace moeplan::cuda {

HostCounts::~HostCounts() {
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
}

StatusOr<HostCounts::Rows> HostCounts::Read(const PeerRows& send, const PeerRows& recv, Stream& stream) {
  Rows rows = {send, recv};
  size_t all = 0;
  for (const PeerRows* one : {&send, &recv}) all += one->cells.counts == nullptr ? 0 : CountsOf(one->cells);
  if (all == 0) return rows;
  RETURN_IF_ERROR(Reserve(all));
  int32_t* next = pinned_;
  for (PeerRows* one : {&rows.send, &rows.recv}) {
    if (one->cells.counts == nullptr) continue;
    const size_t count = CountsOf(one->cells);
    RETURN_IF_ERROR(
        StatusOf(cudaMemcpyAsync(next, one->cells.counts, count * sizeof(int32_t), cudaMemcpyDefault, StreamOf(stream)),
                 "counts of rows"));
    one->cells.counts = next;
    next += count;
  }
  RETURN_IF_ERROR(device_.Await(stream));
  return rows;
}

Status HostCounts::Reserve(size_t counts) {
  if (counts <= room_) return OkStatus();
  if (pinned_ != nullptr) cudaFreeHost(std::exchange(pinned_, nullptr));
  room_ = std::max(counts, 2 * room_);
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, room_ * sizeof(int32_t), cudaHostAllocPortable);
  if (error != cudaSuccess) {
    room_ = 0;
    return error::NoPinnedMemory(counts * sizeof(int32_t), cudaGetErrorString(error));
  }
  pinned_ = static_cast<int32_t*>(data);
  return OkStatus();
}

}  // namespace moeplan::cuda
