// The peak of a processor that nobody told, as its samples show it.
#pragma once

#include <span>

#include "models/cost/samples.h"

namespace moeplan {

// The fastest rate of a forward product, of experts or of a linear layer in BF16 or FP32, in flop/s: size over the
// median of all its times, of every key and size. 0 without any. Pure.
double FastestGemmFlopsPerS(std::span<const Sample> samples);

}  // namespace moeplan
