#include "executor/cuda/nccl_operations.h"

#include <algorithm>
#include <iterator>

#include "executor/cuda/errors.h"

namespace moeplan::executor::cuda {
namespace {

// An event of a card that has failed has passed: nobody will come.
bool HasPassed(cudaEvent_t event) { return cudaEventQuery(event) != cudaErrorNotReady; }

Status Record(cudaEvent_t event, bool repeats, cudaStream_t stream) {
  return StatusOf(
      repeats ? cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal) : cudaEventRecord(event, stream),
      "an event of a collective");
}

}  // namespace

NcclOperations::~NcclOperations() {
  for (const Operation& operation : operations_) {
    spare_events_.push_back(operation.begun);
    spare_events_.push_back(operation.ended);
  }
  for (cudaEvent_t event : spare_events_) cudaEventDestroy(event);
}

StatusOr<NcclOperations::Operation*> NcclOperations::Begin(const std::string& task, size_t bytes, bool capturing,
                                                           cudaStream_t stream) {
  DropEnded();
  Operation operation = {.task = task, .bytes = bytes, .watch = DeadlineWatch(deadline_s_), .repeats = capturing};
  RETURN_IF_ERROR(MakeEvents(operation));
  operations_.push_back(std::move(operation));
  RETURN_IF_ERROR(Record(operations_.back().begun, capturing, stream));
  return &operations_.back();
}

Status NcclOperations::End(Operation& operation, cudaStream_t stream) {
  return Record(operation.ended, operation.repeats, stream);
}

const NcclOperations::Operation* NcclOperations::FindOverdue(uint64_t replays, HostTime now) {
  for (Operation& operation : operations_) {
    const uint64_t run = operation.repeats ? replays : 0;
    if (operation.watch.IsOverdue(HasPassed(operation.begun), HasPassed(operation.ended), run, now)) return &operation;
  }
  return nullptr;
}

const NcclOperations::Operation* NcclOperations::UnderWay() const {
  for (const Operation& operation : operations_) {
    if (HasPassed(operation.begun) && !HasPassed(operation.ended)) return &operation;
  }
  return operations_.empty() ? nullptr : &operations_.back();
}

Status NcclOperations::MakeEvents(Operation& operation) {
  for (cudaEvent_t* event : {&operation.begun, &operation.ended}) {
    if (spare_events_.empty()) {
      RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event of a collective"));
    } else {
      *event = spare_events_.back();
      spare_events_.pop_back();
    }
  }
  return OkStatus();
}

void NcclOperations::Retire(const Operation& operation) {
  const auto found = std::ranges::find(operations_, &operation, [](const Operation& one) { return &one; });
  if (found != operations_.end()) Drop(found);
}

void NcclOperations::DropEnded() {
  for (auto one = operations_.begin();
       one != operations_.end() && std::next(one) != operations_.end();) {  // The last stays.
    one = !one->repeats && HasPassed(one->ended) ? Drop(one) : std::next(one);
  }
}

std::list<NcclOperations::Operation>::iterator NcclOperations::Drop(std::list<Operation>::iterator operation) {
  spare_events_.push_back(operation->begun);
  spare_events_.push_back(operation->ended);
  return operations_.erase(operation);
}

}  // namespace moeplan::executor::cuda
