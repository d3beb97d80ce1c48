#include "executor/cuda/cuda_rank.h"

#include "executor/cuda/cuda_communicator.h"
#include "executor/cuda/cuda_kernels.h"
#include "models/text.h"

namespace moeplan::cuda {

CudaRank::CudaRank(std::unique_ptr<CudaDevice> device, std::unique_ptr<Communicator> world)
    : device_(std::move(device)), world_(std::move(world)), runtime_(*device_, *world_, CudaKernelsOn(*device_)) {
  device_->OnFailure(
      [world = world_.get()](const Status& why) { world->Abort(why.Within(StrCat("on rank ", world->rank()))); });
}

CudaRank::~CudaRank() {
  (void)device_->Synchronize();  // Whoever cared has asked before.
  device_->OnFailure(nullptr);
}

StatusOr<std::unique_ptr<CudaRank>> MakeCudaRank(const CudaDeviceOptions& options, const Connect& connect) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, MakeCudaDevice(options));
  ASSIGN_OR_RETURN(std::unique_ptr<PartExchange> exchange, connect(*device));
  std::unique_ptr<Communicator> world = MakeCudaCommunicator(std::move(exchange), *device);
  return std::make_unique<CudaRank>(std::move(device), std::move(world));
}

}  // namespace moeplan::cuda
