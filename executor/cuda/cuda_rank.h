// One rank of a job on the cuda backend: a card, the communicator of all ranks, the kernels of cuda_kernels.h, and the
// runtime that layers share.
//
// A device that fails aborts the communicators. After that the rank is spent: everything queued answers the first
// error. One thread, the one that makes it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "executor/communicator.h"
#include "executor/cuda/cuda_device.h"
#include "executor/cuda/cuda_kernels.h"
#include "executor/cuda/part_exchange.h"
#include "executor/rank_backend.h"
#include "executor/runtime/rank_runtime.h"

namespace moeplan::executor::cuda {

class CudaRank final : public Rank {
 public:
  CudaRank(std::unique_ptr<CudaDevice> device, std::unique_ptr<Communicator> world);
  // Blocks until the card has passed what is queued.
  ~CudaRank() override;

  CudaDevice& device() override { return *device_; }
  Communicator& world() override { return *world_; }
  RankRuntime& runtime() override { return runtime_; }
  // For layers whose weights stay on the card.
  CudaKernelMaker& kernels() { return kernels_; }

  std::map<std::string, std::string> facts() const override { return facts_; }
  void SetFacts(std::map<std::string, std::string> facts) { facts_ = std::move(facts); }

  void Fail(const Status& why) override { device_->Fail(why); }
  Status CoolCaches() override;
  // Does nothing where the last call was a moment ago: who measures goes on working.
  Status SettleClocks() override;

 private:
  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<Communicator> world_;
  CudaKernelMaker kernels_;
  RankRuntime runtime_;
  std::map<std::string, std::string> facts_;
  std::unique_ptr<Stream> sweeping_;
  DeviceMemory swept_;
  std::optional<std::chrono::steady_clock::time_point> settled_;
};

// Connects the rank with the others of the job: MakeInProcessExchange, MakeNcclExchange or MakeStagedExchange.
// Collective; blocks.
using Connect = std::function<StatusOr<std::unique_ptr<PartExchange>>(CudaDevice& device)>;

StatusOr<std::unique_ptr<CudaRank>> MakeCudaRank(const CudaDeviceOptions& options, const Connect& connect);

}  // namespace moeplan::executor::cuda
