// The MoE kernels on a card, queued on the streams of a CudaDevice.
//
// Weights and gradients are the host's vectors, as on every backend: each gate takes the weights over to the card, with
// which the whole pass and its backward one then run, and each task of weight gradients adds to the host's. All else
// stays on the card. Scratch is allocated where a task is queued for the first time, and not again. Only where the rows
// of cells are counted does the host wait for the card, because products need their sizes; such work is no graph.
//
// FFN experts, every gate and our codecs; what a program adds has host functions alone and is refused.
#pragma once

#include <memory>

#include "executor/cuda/cuda_device.h"
#include "executor/runtime/rank_runtime.h"

namespace moeplan::cuda {

// kUnimplemented or kInvalidInput, naming the field, for a layer that has no kernels here.
Status CheckLayer(const Layer& layer);

// What RankRuntime makes kernels with, on the device's thread. The device, which is borrowed, must outlive the kernels.
// cuBLAS is set up with the first layer, for all of them.
KernelsFactory CudaKernelsOn(CudaDevice& device);

}  // namespace moeplan::cuda
