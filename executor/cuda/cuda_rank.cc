#include "executor/cuda/cuda_rank.h"

#include <utility>

#include "executor/cuda/card_facts.h"
#include "executor/cuda/cuda_communicator.h"
#include "executor/cuda/errors.h"
#include "models/text.h"

namespace moeplan::executor::cuda {

CudaRank::CudaRank(std::unique_ptr<CudaDevice> device, std::unique_ptr<Communicator> world)
    : device_(std::move(device)),
      world_(std::move(world)),
      kernels_(*device_),
      runtime_(
          *device_, *world_,
          [this](const Layer& layer, const LayerWeightsView& weights, const LayerGradientsView& gradients) {
            return kernels_.Make(layer, weights, gradients);
          },
          [this](const Layer& layer, const LayerShard& shard, const DeviceWeights& weights) {
            return kernels_.Make(layer, shard, weights, /*gradients=*/nullptr);
          }) {
  device_->OnFailure(
      [world = world_.get()](const Status& why) { world->Abort(why.Within(StrCat("on rank ", world->rank()))); });
}

CudaRank::~CudaRank() {
  (void)device_->Synchronize();  // Whoever cared has asked before.
  device_->OnFailure(nullptr);
}

Status CudaRank::CoolCaches() {
  if (sweeping_ == nullptr) {
    int card = 0, cache_bytes = 0;
    RETURN_IF_ERROR(StatusOf(cudaGetDevice(&card), "the card"));
    RETURN_IF_ERROR(StatusOf(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, card), "the size of the L2"));
    ASSIGN_OR_RETURN(swept_, device_->Allocate(2 * static_cast<size_t>(cache_bytes)));
    sweeping_ = device_->MakeStream("SWEEP", StreamPriority::kNormal);
  }
  device_->Label(*sweeping_, "cool caches");
  Report(*sweeping_, StatusOf(cudaMemsetAsync(swept_.data(), 1, swept_.bytes(), StreamOf(*sweeping_)), "a sweep"));
  return device_->Await(*sweeping_);
}

Status CudaRank::SettleClocks() {
  constexpr std::chrono::seconds kMoment{1};
  const auto now = std::chrono::steady_clock::now();
  const auto before = std::exchange(settled_, now);
  if (before && now - *before < kMoment) return OkStatus();
  RETURN_IF_ERROR(cuda::SettleClocks(*device_));
  settled_ = std::chrono::steady_clock::now();
  return OkStatus();
}

StatusOr<std::unique_ptr<CudaRank>> MakeCudaRank(const CudaDeviceOptions& options, const Connect& connect) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, MakeCudaDevice(options));
  ASSIGN_OR_RETURN(std::unique_ptr<PartExchange> exchange, connect(*device));
  std::unique_ptr<Communicator> world = MakeCudaCommunicator(std::move(exchange), *device);
  return std::make_unique<CudaRank>(std::move(device), std::move(world));
}

}  // namespace moeplan::executor::cuda
