// Runs that differ in how rows reach their experts.
#pragma once

#include <vector>

#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/data_folder.h"
#include "cli/reproduce/steps/measured_step.h"
#include "models/status.h"

namespace moeplan::cli {

inline constexpr const char* kDispatcherRuns = "dispatcher_runs.csv";

// Every row, in its order; one that we cannot price has a reason. kInvalidInput: the file is not as it should be.
StatusOr<std::vector<MeasuredStep>> DispatcherSteps(const DataFolder& folder, Constants& constants);

}  // namespace moeplan::cli
