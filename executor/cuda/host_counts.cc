#include "executor/cuda/host_counts.h"

#include <algorithm>

#include "executor/cuda/errors.h"
#include "executor/cuda/pinned_memory.h"

namespace moeplan::executor::cuda {

StatusOr<HostCounts::Rows> HostCounts::Read(const PeerRows& send, const PeerRows& recv, Stream& stream) {
  Rows rows = {send, recv};
  size_t all = 0;
  for (const PeerRows* one : {&send, &recv}) all += one->cells.counts == nullptr ? 0 : CountsOf(one->cells);
  if (all == 0) return rows;
  RETURN_IF_ERROR(Reserve(all));
  auto* next = reinterpret_cast<int32_t*>(pinned_.data());
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
  const size_t room = pinned_.bytes() / sizeof(int32_t);
  if (counts <= room) return OkStatus();
  pinned_ = {};
  ASSIGN_OR_RETURN(pinned_, AllocatePinned(std::max(counts, 2 * room) * sizeof(int32_t)));
  return OkStatus();
}

}  // namespace moeplan::executor::cuda
