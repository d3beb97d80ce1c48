#include "models/memory/weights.h"

#include "models/check.h"

namespace moeplan {

TrainingState TrainingStateOf(double parameters, double replicas, int zero_stage, int bytes_per_element,
                              int gradient_bytes) {
  MOEPLAN_CHECK(zero_stage >= 0 && zero_stage <= kMaxZeroStage && replicas >= 1);
  constexpr double kMoments = 4 + 4;
  const double weight = bytes_per_element, gradient = gradient_bytes > 0 ? gradient_bytes : bytes_per_element;
  const double states = kMoments + (bytes_per_element < 4 ? 4 : 0);
  const auto cut_from = [&](int stage, double bytes) { return zero_stage >= stage ? bytes / replicas : bytes; };
  return {.weight_bytes = parameters * cut_from(3, weight),
          .gradient_bytes = parameters * cut_from(2, gradient),
          .optimizer_bytes = parameters * cut_from(1, states)};
}

}  // namespace moeplan
