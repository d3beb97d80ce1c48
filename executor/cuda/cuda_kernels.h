// The MoE kernels on a card, queued on the streams of a CudaDevice.
//
// Weights and gradients are the job's memory on the card, or the host's vectors, as on every backend: then the card has
// a copy, which Kernels::TakeWeights and GiveGradients keep up. All else stays on the card. Scratch is allocated where
// a task is queued for the first time, and not again. Only where the rows of cells are counted does the host wait for
// the card, because products need their sizes; such work is no graph.
//
// FFN experts, every gate and our codecs; what a program adds has host functions alone and is refused.
#pragma once

#include <memory>

#include "executor/cuda/card_weights.h"
#include "executor/cuda/cuda_device.h"
#include "executor/cuda/grouped_gemm.h"
#include "executor/kernels.h"

namespace moeplan::executor::cuda {

// kUnimplemented or kInvalidInput, naming the field, for a layer that has no kernels here.
Status CheckLayer(const Layer& layer);

// Makes the kernels of a rank's layers, on the device's thread. cuBLAS is set up with the first layer, for all of them.
class CudaKernelMaker {
 public:
  // The device is borrowed and must outlive maker and kernels.
  explicit CudaKernelMaker(CudaDevice& device) : device_(device) {}

  // Over vectors of the host, as MakeHostKernels.
  StatusOr<std::unique_ptr<Kernels>> Make(const Layer& layer, const LayerWeightsView& weights,
                                          const LayerGradientsView& gradients);
  // Over memory of the card, borrowed, of the layer's shard; the job may change the weights between runs. `gradients`:
  // null where no graph with backward tasks is run.
  StatusOr<std::unique_ptr<Kernels>> Make(const Layer& layer, const LayerShard& shard, const DeviceWeights& weights,
                                          const DeviceGradients* gradients);

 private:
  StatusOr<std::shared_ptr<GroupedGemm>> Gemm();

  CudaDevice& device_;
  std::shared_ptr<GroupedGemm> gemm_;
};

}  // namespace moeplan::executor::cuda
