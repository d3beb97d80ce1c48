#include "executor/virtual/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/host/host_stream.h"
#include "executor/virtual/errors.h"
#include "models/check.h"

namespace moeplan::executor {
namespace {

class WorkStep final : public VirtualStep {
 public:
  WorkStep(StepQueue& queue, QueuedTask task, HostStream::Work work)
      : queue_(queue), task_(std::move(task)), work_(std::move(work)) {}

  bool Pass() override {
    if (!begun_) Begin();
    return done_;
  }

  std::string WaitsFor() const override { return "its own end"; }

 private:
  void Begin() {
    begun_ = true;
    VirtualDevice& device = queue_.device();
    if (device.failed()) return End();
    device.machine().Work(device.rank(), task_, [this] {
      End();
      if (under_way_) queue_.Wake();
    });
    under_way_ = true;
  }

  void End() {
    done_ = true;
    VirtualDevice& device = queue_.device();
    if (device.failed()) return;
    if (const Status status = work_(); !status.ok()) device.Fail(status);
  }

  StepQueue& queue_;
  const QueuedTask task_;
  const HostStream::Work work_;
  bool begun_ = false, under_way_ = false, done_ = false;
};

struct EventState {
  uint64_t announced = 0, passed = 0;
  double time_s = 0;
  std::string recorded_by;  // The last Record's place, for messages.
  std::vector<StepQueue*> waiting;
};

struct VirtualEvent final : Event {
  // Shared with queued steps: a runner that gives up destroys its events before its streams.
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

class RecordStep final : public VirtualStep {
 public:
  RecordStep(StepQueue& queue, std::shared_ptr<EventState> event)
      : queue_(queue), event_(std::move(event)), pass_(++event_->announced) {}

  bool Pass() override {
    event_->passed = pass_;
    event_->time_s = queue_.device().agenda().now_s();
    for (StepQueue* waiting : std::exchange(event_->waiting, {})) waiting->Wake();
    return true;
  }

  std::string WaitsFor() const override { return "nothing"; }

 private:
  StepQueue& queue_;
  std::shared_ptr<EventState> event_;
  const uint64_t pass_;
};

class WaitStep final : public VirtualStep {
 public:
  WaitStep(StepQueue& queue, std::shared_ptr<EventState> event)
      : queue_(queue), event_(std::move(event)), pass_(event_->announced), recorded_by_(event_->recorded_by) {}

  bool Pass() override {
    if (event_->passed >= pass_) return true;
    event_->waiting.push_back(&queue_);
    return false;
  }

  std::string WaitsFor() const override { return StrCat("the event of ", recorded_by_); }

 private:
  StepQueue& queue_;
  std::shared_ptr<EventState> event_;
  const uint64_t pass_;
  const std::string recorded_by_;
};

// Keeps no work: time is made up, so queueing costs none.
class VirtualRecording final : public Recording {
 public:
  explicit VirtualRecording(std::function<void()> queue) : queue_(std::move(queue)) {}
  void Enqueue() override { queue_(); }

 private:
  const std::function<void()> queue_;
};

class VirtualStream final : public HostStream {
 public:
  explicit VirtualStream(StepQueue& queue) : queue_(queue) {}
  ~VirtualStream() override {
    if (!queue_.idle()) queue_.device().Fail(error::StreamGoneEarly(queue_.name()));
  }

  void Enqueue(Work work) override {
    QueuedTask task = TakeTask();
    const std::string name = task.name;
    queue_.Push(name, std::make_unique<WorkStep>(queue_, std::move(task), std::move(work)));
  }

  void Begin(const std::string& task) {
    set_label(task);
    timed_ = true;
  }
  QueuedTask TakeTask() { return {label(), std::exchange(timed_, false), std::exchange(size_, nullptr)}; }
  void SetWorkSize(std::function<WorkSize()> size) { size_ = std::move(size); }
  StepQueue& queue() { return queue_; }

 private:
  StepQueue& queue_;
  bool timed_ = false;  // Whether the label's time is still to be taken.
  std::function<WorkSize()> size_;
};

VirtualStream& Virtual(Stream& stream) { return static_cast<VirtualStream&>(stream); }
EventState& StateOf(Event& event) { return *static_cast<VirtualEvent&>(event).state; }

}  // namespace

StepQueue& QueueOf(Stream& stream) { return Virtual(stream).queue(); }
QueuedTask TakeTask(Stream& stream) { return Virtual(stream).TakeTask(); }
void SetWorkSize(Stream& stream, std::function<WorkSize()> size) { Virtual(stream).SetWorkSize(std::move(size)); }

void StepQueue::Push(std::string task, std::unique_ptr<VirtualStep> step) {
  steps_.push_back({std::move(task), std::move(step)});
  if (steps_.size() > 1) return;
  ++device_.busy_queues_;
  Wake();
}

void StepQueue::Wake() {
  if (std::exchange(woken_, true)) return;
  device_.agenda().After(0, [this] {
    woken_ = false;
    Advance();
  });
}

void StepQueue::Advance() {
  while (!steps_.empty() && steps_.front().step->Pass()) PopFront();
}

void StepQueue::PopFront() {
  steps_.pop_front();
  if (!steps_.empty() || --device_.busy_queues_ > 0) return;
  if (VirtualConductor* conductor = device_.job().conductor) conductor->Wake(device_.rank());
}

std::string StepQueue::DescribeWait() const {
  MOEPLAN_CHECK(!idle());
  const auto named = std::ranges::find_if(steps_, [](const Entry& entry) { return !entry.task.empty(); });
  return StrCat("rank ", device_.rank(), ", stream ", name_, named == steps_.end() ? "" : ", task ",
                named == steps_.end() ? std::string() : named->task, " waits for ", steps_.front().step->WaitsFor());
}

StatusOr<DeviceMemory> VirtualDevice::Allocate(size_t bytes) { return machine().Allocate(rank_, bytes); }

std::unique_ptr<Stream> VirtualDevice::MakeStream(const std::string& name, StreamPriority) {
  queues_.push_back(std::make_unique<StepQueue>(*this, name));
  return std::make_unique<VirtualStream>(*queues_.back());
}

std::unique_ptr<Event> VirtualDevice::MakeEvent() { return std::make_unique<VirtualEvent>(); }

void VirtualDevice::Record(Event& event, Stream& stream) {
  const std::string& task = Virtual(stream).label();
  StepQueue& queue = QueueOf(stream);
  StateOf(event).recorded_by = StrCat("task ", task, " on stream ", queue.name());
  queue.Push(task, std::make_unique<RecordStep>(queue, static_cast<VirtualEvent&>(event).state));
}

void VirtualDevice::Wait(Stream& stream, Event& event) {
  StepQueue& queue = QueueOf(stream);
  // The label still names the task before; the one that waits is labelled next.
  queue.Push(/*task=*/"", std::make_unique<WaitStep>(queue, static_cast<VirtualEvent&>(event).state));
}

void VirtualDevice::Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) {
  SetWorkSize(stream, [=] { return WorkSize{.memory_bytes = 2.0 * bytes}; });
  Virtual(stream).Enqueue([=, &machine = machine()] {
    if (machine.HoldsData(from) && machine.HoldsData(to)) std::memcpy(to, from, bytes);
    return OkStatus();
  });
}

void VirtualDevice::Label(Stream& stream, const std::string& task) { Virtual(stream).Begin(task); }

std::unique_ptr<Recording> VirtualDevice::Capture(std::function<void()> queue) {
  return std::make_unique<VirtualRecording>(std::move(queue));
}

Status VirtualDevice::Synchronize() {
  if (job_.conductor != nullptr) {
    job_.conductor->Await(
        rank_, [this] { return idle(); }, /*what=*/"");
  } else {
    while (!idle()) PlayOn(job_);
  }
  return failure_;
}

double VirtualDevice::TimeS(const Event& event) const { return static_cast<const VirtualEvent&>(event).state->time_s; }

void VirtualDevice::Fail(const Status& why) {
  if (failed()) return;
  failure_ = why;
  if (job_.first_failure.ok()) job_.first_failure = why.Within(StrCat("rank ", rank_));
  for (Agenda::Action& action : std::exchange(on_failure_, {})) agenda().After(0, std::move(action));
  WakeStreams();
  if (job_.conductor != nullptr) job_.conductor->Wake(rank_);
}

void VirtualDevice::WakeStreams() {
  for (const auto& queue : queues_) queue->Wake();
}

void VirtualDevice::DescribeWaits(std::vector<std::string>& waits) const {
  for (const auto& queue : queues_) {
    if (!queue->idle()) waits.push_back(queue->DescribeWait());
  }
}

void PlayOn(VirtualJob& job) {
  if (job.machine.agenda().PlayNext()) return;
  const int failed = FailDeadlocked(job);
  MOEPLAN_CHECK(failed > 0);  // Else this would go on for ever: a failed device's streams wait for nobody.
}

int FailDeadlocked(VirtualJob& job, std::vector<std::string> waits) {
  for (const auto& device : job.devices) device->DescribeWaits(waits);
  const Status deadlock = error::Deadlock(job.machine.agenda().now_s(), waits);
  int failed = 0;
  for (const auto& device : job.devices) {
    if (device->idle() || device->failed()) continue;
    device->Fail(deadlock);
    ++failed;
  }
  return failed;
}

}  // namespace moeplan::executor
