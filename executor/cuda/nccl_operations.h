// The operations of one NCCL communicator that are under way, or that recordings repeat, and which of them is late.
#pragma once

#include <cuda_runtime_api.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "executor/cuda/deadline_watch.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

class NcclOperations {
 public:
  struct Operation {
    std::string task;
    size_t bytes = 0;
    cudaEvent_t begun = nullptr, ended = nullptr;
    DeadlineWatch watch;
    bool repeats = false;  // In a recording.
  };

  explicit NcclOperations(double deadline_s) : deadline_s_(deadline_s) {}
  NcclOperations(const NcclOperations&) = delete;
  NcclOperations& operator=(const NcclOperations&) = delete;
  ~NcclOperations();

  // Around what is queued on `stream`. The operation stays where it is until it has ended or, while capturing, until
  // its recording is retired.
  StatusOr<Operation*> Begin(const std::string& task, size_t bytes, bool capturing, cudaStream_t stream);
  Status End(Operation& operation, cudaStream_t stream);
  // Nothing repeats it any more.
  void Retire(const Operation& operation);

  // The first that has had its time, or null. `replays`: of recordings, so far.
  const Operation* FindOverdue(uint64_t replays, HostTime now);
  // One that has begun and not ended, else the last; null before the first.
  const Operation* UnderWay() const;

 private:
  Status MakeEvents(Operation& operation);
  void DropEnded();
  std::list<Operation>::iterator Drop(std::list<Operation>::iterator operation);

  const double deadline_s_;
  std::list<Operation> operations_;
  std::vector<cudaEvent_t> spare_events_;
};

}  // namespace moeplan::executor::cuda
