#include "cli/calibrated_models.h"

#include "planner/layout/step_needs.h"
#include "planner/shipped/names.h"

namespace moeplan::cli {

StatusOr<std::vector<Need>> NeedsOfModels(const std::vector<ModelConfig>& models, const Cluster& cluster) {
  std::vector<Need> all;
  for (const ModelConfig& model : models) {
    ASSIGN_OR_RETURN(const std::vector<Need> needs, planner::NeedsOfSteps(model, cluster));
    all = MergedNeeds(all, needs);
  }
  return all;
}

StatusOr<std::vector<Need>> NeedsOfUsualModels(const std::string& backend, const Cluster& cluster) {
  std::vector<Need> all;
  if (backend != "cuda") return all;
  for (const std::string& name : planner::UsualModels()) {
    ASSIGN_OR_RETURN(const ModelConfig model, planner::NamedModel(name));
    // A model that no layout on these GPUs divides needs nothing of them.
    const StatusOr<std::vector<Need>> needs = planner::NeedsOfSteps(model, cluster);
    if (needs.ok()) all = MergedNeeds(all, *needs);
  }
  return all;
}

std::vector<Need> KernelsAlone(std::vector<Need> needs) {
  std::erase_if(needs, [](const Need& need) { return !std::holds_alternative<KernelKey>(need.key); });
  return needs;
}

}  // namespace moeplan::cli
