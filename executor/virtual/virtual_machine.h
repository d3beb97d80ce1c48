// What a virtual job runs on: how long its work takes, and what its memory is. The streams, events and groups of
// virtual_device.h and virtual_communicator.h ask it when they get there.
//
// One thread, or several of which one runs at a time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/host/parts.h"
#include "executor/virtual/agenda.h"
#include "models/status.h"

namespace moeplan::executor {

// What a piece of work asks of its rank.
struct WorkSize {
  int launches = 1;
  double compute_s = 0;  // Of the whole processor.
  double memory_bytes = 0;
};

// A task as work is queued under it.
struct QueuedTask {
  std::string name;
  bool timed = false;              // Whether this work stands for the task's time.
  std::function<WorkSize()> size;  // Of this work, once the stream gets there. Null: nobody has said.
};

enum class GroupOperation {
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kSendRecv,
  kAllToAllAllGather,  // Its all-to-all, with all but the end of its all-gather.
  kAllGatherEnd,       // What is left of that.
  kBarrier,
};

// Bytes for a rank of the job, which need not be of the group.
struct BytesTo {
  int rank = 0;
  double bytes = 0;
};

// An operation of a group, as all members together bring it.
struct GroupWork {
  struct Member {
    int rank = 0;  // In the job.
    const QueuedTask* task = nullptr;
    std::span<const Part> sends;  // Peers are members.
    std::vector<BytesTo> beside;  // What of kAllToAllAllGather's all-gather runs beside the all-to-all.
  };
  GroupOperation operation = GroupOperation::kBarrier;
  double share = 1;             // Of the bytes of `sends`: what is still to be sent.
  std::vector<Member> members;  // By rank in the group.
};

class VirtualMachine {
 public:
  virtual ~VirtualMachine() = default;

  virtual Agenda& agenda() = 0;
  // These two call `done` once, when the work is over: from within, where it takes no time.
  virtual void Work(int rank, const QueuedTask& task, Agenda::Action done) = 0;
  virtual void Operate(const GroupWork& work, Agenda::Action done) = 0;

  virtual StatusOr<DeviceMemory> Allocate(int rank, size_t bytes) = 0;
  // Whether what lies at `place` is worth copying. Places outside of this memory are.
  virtual bool HoldsData(const std::byte* place) const = 0;
  // From now on, of all the memory that was allocated with `place`.
  virtual void SetHoldsData(const std::byte* place) = 0;
};

}  // namespace moeplan::executor
