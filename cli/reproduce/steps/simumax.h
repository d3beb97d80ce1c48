// SimuMax's measured steps: one node, no virtual stages, nothing overlapped.
#pragma once

#include <vector>

#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/data_folder.h"
#include "cli/reproduce/steps/measured_step.h"
#include "models/status.h"

namespace moeplan::cli {

inline constexpr const char* kSimumaxSteps = "simumax_steps.csv";

// Every row of simumax_steps.csv, in its order; one that we cannot price has a reason. kInvalidInput: a file is not as
// it should be.
StatusOr<std::vector<MeasuredStep>> SimumaxSteps(const DataFolder& folder, Constants& constants);

}  // namespace moeplan::cli
