// The peak of a processor that nobody told, as its samples show it.
#pragma once

#include <span>

#include "models/cost/samples.h"

namespace moeplan {

// The fastest rate of the forward product of experts, in flop/s: size over the median of all its times, of every key
// and size. 0 without any. Pure.
double FastestGemmFlopsPerS(std::span<const Sample> samples);

}  // namespace moeplan
