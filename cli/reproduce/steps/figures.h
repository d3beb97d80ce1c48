// How well rows were predicted, by sets (v1::ReproducedStepSet says what each figure is).
#pragma once

#include <string>
#include <vector>

#include "moeplan/v1/reproduced_steps.pb.h"

namespace moeplan::cli {

// Measurements this close name no winner and no order.
inline constexpr double kCloseSteps = 0.01;

// One row and what its figures need beside it.
struct JudgedStep {
  const v1::ReproducedStep* row = nullptr;
  std::string question;       // As MeasuredStep's.
  double tokens_per_gpu = 0;  // Of a step, above 0.
};

// Judges the rows of one set; requires one at least.
v1::ReproducedStepSet FiguresOf(const std::string& set, const std::vector<JudgedStep>& steps);

}  // namespace moeplan::cli
