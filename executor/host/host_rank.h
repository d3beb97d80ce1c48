// One rank of a job on the host backend: a device, the communicator of all ranks, and the runtime that layers share.
//
// A device that fails aborts the communicators, so that peers which wait for this rank learn why. After that the rank
// is spent: everything queued answers the first error. One thread, but for what Device and Communicator say.
#pragma once

#include <memory>
#include <vector>

#include "executor/communicator.h"
#include "executor/host/host_device.h"
#include "executor/host/mesh.h"
#include "executor/rank_backend.h"
#include "executor/runtime/rank_runtime.h"

namespace moeplan::executor {

class HostRank final : public Rank {
 public:
  // Each collective must finish within `deadline_s` seconds.
  HostRank(std::unique_ptr<Mesh> mesh, double deadline_s);

  HostDevice& device() override { return *device_; }
  Communicator& world() override { return *world_; }
  RankRuntime& runtime() override { return runtime_; }

  void Fail(const Status& why) override { device_->Fail(why); }
  Status CoolCaches() override;

 private:
  const std::unique_ptr<Communicator> world_;
  const std::unique_ptr<HostDevice> device_;
  RankRuntime runtime_;
  std::vector<char> swept_;
};

// Rank processes connected by Gloo; without it in the build, Join answers kUnimplemented.
const RankBackend& HostBackend();

}  // namespace moeplan::executor
