// Calibrations measure what steps of some models need beside what layouts need.
#pragma once

#include <string>
#include <vector>

#include "models/measurement/needs.h"
#include "models/model/model_config.h"
#include "models/status.h"

namespace moeplan::cli {

// Returns what steps of these models need on the cluster (planner/layout/step_needs.h), each once, most useful first.
// Its errors are those of NeedsOfSteps.
StatusOr<std::vector<Need>> NeedsOfModels(const std::vector<ModelConfig>& models, const Cluster& cluster);

// Serves who names no model: on GPUs it returns the needs of those of UsualModels that divide the cluster, else none,
// since nobody trains such models on processors.
StatusOr<std::vector<Need>> NeedsOfUsualModels(const std::string& backend, const Cluster& cluster);

// Leaves the kernels, for ranks that are fewer than those of the cluster that the needs are of.
std::vector<Need> KernelsAlone(std::vector<Need> needs);

}  // namespace moeplan::cli
