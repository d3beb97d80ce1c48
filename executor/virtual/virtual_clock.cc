#include "executor/virtual/virtual_clock.h"

#include <algorithm>
#include <utility>

#include "executor/host/host_device.h"
#include "executor/virtual/virtual_communicator.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan::executor {
namespace {

// Every task takes what a function says.
class TimedMachine final : public VirtualMachine {
 public:
  explicit TimedMachine(TaskTime task_time) : task_time_(std::move(task_time)) {}

  Agenda& agenda() override { return agenda_; }

  void Work(int rank, const QueuedTask& task, Agenda::Action done) override {
    After(TimeOfS(rank, task), std::move(done));
  }

  void Operate(const GroupWork& work, Agenda::Action done) override {
    double time_s = 0;
    for (const GroupWork::Member& member : work.members) time_s = std::max(time_s, TimeOfS(member.rank, *member.task));
    agenda_.After(time_s, std::move(done));
  }

  StatusOr<DeviceMemory> Allocate(int /*rank*/, size_t bytes) override { return AllocateHostMemory(bytes); }
  bool HoldsData(const std::byte* /*place*/) const override { return true; }
  void SetHoldsData(const std::byte* /*place*/) override {}

 private:
  double TimeOfS(int rank, const QueuedTask& task) const { return task.timed ? task_time_(rank, task.name) : 0; }

  void After(double time_s, Agenda::Action done) {
    if (time_s == 0) return done();
    agenda_.After(time_s, std::move(done));
  }

  const TaskTime task_time_;
  Agenda agenda_;
};

class JobClock final : public VirtualClock {
 public:
  JobClock(int ranks, TaskTime task_time) : machine_(std::move(task_time)) {
    for (int rank = 0; rank < ranks; ++rank) job_.devices.push_back(std::make_unique<VirtualDevice>(job_, rank));
    world_ = groups_->MakeWorld(job_);
  }

  Device& device(int rank) override { return *job_.devices[rank]; }
  Communicator& world(int rank) override { return *world_[rank]; }
  double now_s() const override { return job_.machine.agenda().now_s(); }

  Status Run() override {
    while (!std::ranges::all_of(job_.devices, [](const auto& device) { return device->idle(); })) PlayOn(job_);
    return job_.first_failure;
  }

 private:
  TimedMachine machine_;
  VirtualJob job_{machine_};
  std::unique_ptr<VirtualGroups> groups_ = MakeVirtualGroups();
  std::vector<std::unique_ptr<Communicator>> world_;
};

}  // namespace

std::unique_ptr<VirtualClock> VirtualClock::Make(int ranks, TaskTime task_time) {
  return std::make_unique<JobClock>(ranks, std::move(task_time));
}

}  // namespace moeplan::executor
