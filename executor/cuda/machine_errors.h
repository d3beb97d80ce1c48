// What goes wrong with a card or with NCCL, worded once. No CUDA header, so the CPU tests them.
#pragma once

#include <span>
#include <string>

#include "models/status.h"
#include "models/text.h"

namespace moeplan::executor::error {

inline Status NoCard(int card, int found, const std::string& cuda_says) {
  return Unavailable(StrCat("found ", found, " CUDA cards, expected card ", card, " (", cuda_says,
                            "); see nvidia-smi and CUDA_VISIBLE_DEVICES, or use the host backend"));
}

inline Status NoDeviceMemory(size_t asked, size_t free, size_t total) {
  return Unavailable(StrCat("out of device memory: asked for ", asked, " bytes, ", free, " of ", total,
                            " are free; plan with a lower memory limit or close what else uses the card"));
}

inline Status NoPinnedMemory(size_t asked, const std::string& cuda_says) {
  return Unavailable(
      StrCat("out of pinned memory: asked for ", asked, " bytes (", cuda_says, "); see ulimit -l and the free memory"));
}

// The card reports what fails in a kernel late, so that the task is only known to be no later than `last_task`.
inline Status StreamFailed(const std::string& stream, const std::string& last_task, const std::string& cuda_says) {
  return InternalError(StrCat("stream ", stream, " failed in task ", last_task.empty() ? "(none)" : last_task,
                              " or one before it: CUDA says ", cuda_says,
                              "; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer tells which"));
}

inline Status PartsDiffer(int from, size_t sent, int to, size_t expected, const std::string& task) {
  return InternalError(
      StrCat("task ", task, ": rank ", from, " sends ", sent, " bytes to rank ", to, ", which expects ", expected));
}

inline std::string RankList(std::span<const int> ranks) {
  std::string list;
  for (size_t i = 0; i < ranks.size(); ++i)
    list += StrCat(i == 0 ? "" : i + 1 == ranks.size() ? " or " : ", ", ranks[i]);
  return list;
}

// ---- Of NCCL, which does not tell which peer it waits for. `peers`: those of the job that take part.
struct NcclOperation {
  std::string task;
  size_t bytes = 0;  // That the own rank sends.
  int rank = 0;      // In the job.
  std::span<const int> peers;
};

inline std::string Describe(const NcclOperation& operation) {
  return StrCat("task ", operation.task, ", ", operation.bytes, " bytes from rank ", operation.rank);
}

inline Status NcclOverdue(const NcclOperation& operation, double deadline_s) {
  return DeadlineExceeded(StrCat("rank ", RankList(operation.peers), " did not answer within ", deadline_s,
                                 " s: ", Describe(operation), "; the communicator was aborted"));
}

inline Status NoGraphHere() {
  return InternalError(
      "found work that CUDA takes for no graph any more, expected one, as the other ranks replay theirs");
}

inline Status StreamIsCaptured() {
  return InvalidInput(
      "stream: found one that a graph is captured from, expected one that runs: the work of a layer is no part of the "
      "job's "
      "graphs");
}

inline Status NcclLostPeer(const NcclOperation& operation, const std::string& nccl_says) {
  return PeerLost(
      StrCat("rank ", RankList(operation.peers), " is lost (NCCL: ", nccl_says, "): ", Describe(operation)));
}

inline Status NcclFailed(const NcclOperation& operation, const std::string& nccl_says) {
  return InternalError(StrCat(Describe(operation), ": NCCL says ", nccl_says, "; NCCL_DEBUG=INFO tells more"));
}

// `findings`: of AskRas, or empty.
inline Status WithRasFindings(const Status& status, const std::string& findings) {
  if (findings.empty()) return status;
  return Status(status.code(), StrCat(status.message(), "; NCCL's RAS service says: ", findings));
}

}  // namespace moeplan::executor::error
