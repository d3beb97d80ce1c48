// vTrain's measured iterations of dense models on one node of A100s.
#pragma once

#include <vector>

#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/data_folder.h"
#include "cli/reproduce/steps/measured_step.h"
#include "models/status.h"

namespace moeplan::cli {

// Every row of every vtrain_*.csv, in their order; the set is the file's name. kInvalidInput: a file is not as it
// should be.
StatusOr<std::vector<MeasuredStep>> VtrainSteps(const DataFolder& folder, Constants& constants);

}  // namespace moeplan::cli
