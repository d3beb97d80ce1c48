// A rank of a virtual job: its streams as queues of steps, played by an agenda that all ranks share.
//
// Owned by the job; see virtual_clock.h for what errors mean, and virtual_machine.h for what time does.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/device.h"
#include "executor/virtual/agenda.h"
#include "executor/virtual/virtual_machine.h"

namespace moeplan::executor {

class VirtualDevice;

// One entry of a stream's queue.
class VirtualStep {
 public:
  virtual ~VirtualStep() = default;
  // Whether the stream may go past. Asked when the stream gets here, which starts the step, and after every Wake until
  // it is true. On a failed device it is true at once, but for work under way.
  virtual bool Pass() = 0;
  // What holds up a stream that stands here, for the error of a deadlock.
  virtual std::string WaitsFor() const = 0;
};

// The steps of one stream in order. Lives as long as the device, so that what is under way may outlive the Stream.
class StepQueue {
 public:
  StepQueue(VirtualDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

  // `task`: who the step belongs to; empty: the step after it.
  void Push(std::string task, std::unique_ptr<VirtualStep> step);
  // Asks the first step again, at this instant but not from inside this call.
  void Wake();

  bool idle() const { return steps_.empty(); }
  VirtualDevice& device() const { return device_; }
  const std::string& name() const { return name_; }
  // "rank 0, stream COMPUTE, task a waits for ...". Requires not idle.
  std::string DescribeWait() const;

 private:
  struct Entry {
    std::string task;
    std::unique_ptr<VirtualStep> step;
  };
  void Advance();
  void PopFront();

  VirtualDevice& device_;
  const std::string name_;
  std::deque<Entry> steps_;
  bool woken_ = false;
};

// The queue behind a stream, and the task that its next work is queued under.
StepQueue& QueueOf(Stream& stream);
QueuedTask TakeTask(Stream& stream);
// Of the work that is queued next on `stream`.
void SetWorkSize(Stream& stream, std::function<WorkSize()> size);

// Who plays a job's clock while ranks wait.
class VirtualConductor {
 public:
  virtual ~VirtualConductor() = default;
  // Returns once `ready`, which may change as the clock goes on. `what`: for the error of a deadlock, which fails the
  // device of the rank; `ready` is true then.
  virtual void Await(int rank, const std::function<bool()>& ready, const std::string& what) = 0;
  // What `rank` waits for may have come.
  virtual void Wake(int rank) = 0;
};

// What the ranks of a job share.
struct VirtualJob {
  explicit VirtualJob(VirtualMachine& machine) : machine(machine) {}

  VirtualMachine& machine;
  std::vector<std::unique_ptr<VirtualDevice>> devices;  // By rank.
  Status first_failure;
  VirtualConductor* conductor = nullptr;  // Null: whoever waits plays.
};

class VirtualDevice final : public Device {
 public:
  // The job is borrowed.
  VirtualDevice(VirtualJob& job, int rank) : job_(job), rank_(rank) {}

  StatusOr<DeviceMemory> Allocate(size_t bytes) override;
  bool host_reads_memory() const override { return true; }
  // A virtual clock has no processor to share: priorities change nothing.
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority) override;
  std::unique_ptr<Event> MakeEvent() override;
  void Record(Event& event, Stream& stream) override;
  void Wait(Stream& stream, Event& event) override;
  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override;
  void Label(Stream& stream, const std::string& task) override;
  std::unique_ptr<Recording> Capture(std::function<void()> queue) override;
  Status Synchronize() override;
  // Plays until all streams are done: a clock that nobody plays on would stand still.
  Status Await(Stream&) override { return Synchronize(); }
  double TimeS(const Event& event) const override;

  int rank() const { return rank_; }
  VirtualJob& job() { return job_; }
  VirtualMachine& machine() { return job_.machine; }
  Agenda& agenda() { return job_.machine.agenda(); }

  const Status& failure() const { return failure_; }
  bool failed() const { return !failure_.ok(); }
  // Stops the device, unless it has failed before.
  void Fail(const Status& why);
  // Called soon after the device fails, at that instant.
  void OnFailure(Agenda::Action action) { on_failure_.push_back(std::move(action)); }
  void WakeStreams();

  bool idle() const { return busy_queues_ == 0; }
  void DescribeWaits(std::vector<std::string>& waits) const;

 private:
  VirtualJob& job_;
  const int rank_;
  Status failure_;
  std::vector<Agenda::Action> on_failure_;
  std::vector<std::unique_ptr<StepQueue>> queues_;  // In order of MakeStream.

  friend class StepQueue;
  int busy_queues_ = 0;
};

// Moves the job on by one action; when none is left, fails every device that has a waiting stream.
// Requires one with a waiting stream or an action.
void PlayOn(VirtualJob& job);
// Fails every device that has a waiting stream, as nothing is left that could happen; how many they were. `waits`: what
// else waits.
int FailDeadlocked(VirtualJob& job, std::vector<std::string> waits = {});

}  // namespace moeplan::executor
