// The MoE kernels on the CPU: plain loops and a BLAS, queued on HostStreams (threads or a virtual clock).
#pragma once

#include <memory>

#include "executor/kernels.h"

namespace moeplan {

// `weights` must outlive the kernels and everything queued through them. One object per rank.
std::unique_ptr<Kernels> MakeHostKernels(const Layer& layer, const LayerWeights& weights);

}  // namespace moeplan
