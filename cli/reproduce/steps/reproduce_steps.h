// Measured training steps of others beside ours (docs/truth.md).
//
// No row, model or machine is named in code: what a row asks and what its machine costs is read from the folder.
// Nothing is fitted to a step, but for the factor of a release in sets that begin with "published-".
#pragma once

#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/data_folder.h"
#include "models/status.h"
#include "moeplan/v1/reproduced_steps.pb.h"

namespace moeplan::cli {

// kNotFound: the folder has none of the files of steps. kInvalidInput: a file is not as it should be.
StatusOr<v1::ReproducedSteps> ReproduceSteps(const DataFolder& folder, Constants& constants);

// Fills `reproduced.perturbed`: what each constant moves when it is a tenth less or more, all others as they are.
Status Perturb(const DataFolder& folder, const Constants& constants, v1::ReproducedSteps& reproduced);

}  // namespace moeplan::cli
