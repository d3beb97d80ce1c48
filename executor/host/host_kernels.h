// The MoE kernels on the CPU: plain loops and a BLAS, queued on HostStreams (threads or a virtual clock).
#pragma once

#include <memory>

#include "executor/kernels.h"
#include "models/status.h"

namespace moeplan::executor {

// The memory of `weights` and `gradients` must outlive the kernels and everything queued through them. `gradients`
// collects those of the expert weights; absent where no graph with backward tasks is run. One object per rank. Errors are those of
// LoadGemm.
StatusOr<std::unique_ptr<Kernels>> MakeHostKernels(const Layer& layer, const LayerWeightsView& weights,
                                                   const LayerGradientsView& gradients = {});

}  // namespace moeplan::executor
