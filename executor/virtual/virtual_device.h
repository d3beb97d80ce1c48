// A rank of a virtual job: its streams as queues of steps, played by an agenda that all ranks share.
//
// Owned by the job; see virtual_clock.h for what time and errors mean.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/device.h"
#include "executor/virtual/agenda.h"
#include "executor/virtual/virtual_clock.h"

namespace moeplan {

class VirtualDevice;

// One entry of a stream's queue.
class Step {
 public:
  virtual ~Step() = default;
  // Whether the stream may go past. Asked when the stream gets here, which starts the step, and after every Wake until
  // it is true. On a failed device it is true at once, but for work under way.
  virtual bool Pass() = 0;
  // What holds up a stream that stands here, for the error of a deadlock.
  virtual std::string WaitsFor() const = 0;
};

// A task as work is queued under it.
struct QueuedTask {
  std::string name;
  bool timed = false;  // Whether this work stands for the task's time.
};

// The steps of one stream in order. Lives as long as the device, so that what is under way may outlive the Stream.
class StepQueue {
 public:
  StepQueue(VirtualDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

  // `task`: who the step belongs to; empty: the step after it.
  void Push(std::string task, std::unique_ptr<Step> step);
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
    std::unique_ptr<Step> step;
  };
  void Advance();

  VirtualDevice& device_;
  const std::string name_;
  std::deque<Entry> steps_;
  bool woken_ = false;
};

// The queue behind a stream, and the label that its next work is queued under.
StepQueue& QueueOf(Stream& stream);
QueuedTask TakeTask(Stream& stream);

// What the ranks of a job share.
struct VirtualJob {
  Agenda agenda;
  TaskTime task_time;
  std::vector<std::unique_ptr<VirtualDevice>> devices;  // By rank.
  Status first_failure;
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
  double TimeS(const Event& event) const override;

  int rank() const { return rank_; }
  Agenda& agenda() { return job_.agenda; }
  // Of the work queued as `task`, on this rank.
  double TimeOfS(const QueuedTask& task) const { return task.timed ? job_.task_time(rank_, task.name) : 0; }

  const Status& failure() const { return failure_; }
  bool failed() const { return !failure_.ok(); }
  // Stops the device, unless it has failed before.
  void Fail(const Status& why);
  // Called soon after the device fails, at that instant.
  void OnFailure(Agenda::Action action) { on_failure_.push_back(std::move(action)); }
  void WakeStreams();

  bool idle() const;
  void DescribeWaits(std::vector<std::string>& waits) const;

 private:
  VirtualJob& job_;
  const int rank_;
  Status failure_;
  std::vector<Agenda::Action> on_failure_;
  std::vector<std::unique_ptr<StepQueue>> queues_;  // In order of MakeStream.
};

// Moves the job on by one action; when none is left, fails every device that has a waiting stream.
// Requires one with a waiting stream or an action.
void PlayOn(VirtualJob& job);

}  // namespace moeplan
