#include "executor/virtual/virtual_clock.h"

#include <algorithm>
#include <utility>

#include "executor/virtual/virtual_communicator.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan {
namespace {

class JobClock final : public VirtualClock {
 public:
  JobClock(int ranks, TaskTime task_time) {
    job_.task_time = std::move(task_time);
    for (int rank = 0; rank < ranks; ++rank) job_.devices.push_back(std::make_unique<VirtualDevice>(job_, rank));
    world_ = groups_->MakeWorld(job_);
  }

  Device& device(int rank) override { return *job_.devices[rank]; }
  Communicator& world(int rank) override { return *world_[rank]; }
  double now_s() const override { return job_.agenda.now_s(); }

  Status Run() override {
    while (!std::ranges::all_of(job_.devices, [](const auto& device) { return device->idle(); })) PlayOn(job_);
    return job_.first_failure;
  }

 private:
  VirtualJob job_;
  std::unique_ptr<VirtualGroups> groups_ = MakeVirtualGroups();
  std::vector<std::unique_ptr<Communicator>> world_;
};

}  // namespace

std::unique_ptr<VirtualClock> VirtualClock::Make(int ranks, TaskTime task_time) {
  return std::make_unique<JobClock>(ranks, std::move(task_time));
}

}  // namespace moeplan
