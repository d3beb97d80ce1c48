#include "models/measurement/cost_key.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "models/all_to_all/algorithm.h"
#include "models/check.h"
#include "models/text.h"

namespace moeplan {

CollectiveKey KeyOf(Collective collective, Group group, const Layout& layout, int gpus_per_node) {
  CollectiveKey key{.collective = collective, .group = ShapeOf(group, layout, gpus_per_node)};
  if (collective == Collective::kAllToAllAllGather) {
    key.gather_group_size = layout.tensor_parallel;
    key.shards = layout.expert_sharding_parallel;
  }
  return key;
}

std::vector<CollectiveKey> LayerCollectives(const Layer& layer, const Layout& layout, int gpus_per_node) {
  std::set<CollectiveKey> keys;
  const auto add = [&](Collective collective, Group group, AllToAllAlgorithm algorithm, Team team = Team::kGroup) {
    CollectiveKey key = KeyOf(collective, group, layout, gpus_per_node);
    key.group = ShapeOf(team, key.group);
    key.algorithm = algorithm;
    key.bytes_per_element = layer.bytes_per_element;
    if (key.group.size > 1) keys.insert(key);
  };
  for (const Group group : {Group::kExpert, Group::kExpertShard}) {
    const GroupShape shape = ShapeOf(group, layout, gpus_per_node);
    for (const AllToAllAlgorithm algorithm : AllFrom(AllToAllAlgorithm::kDirect)) {
      if (AlgorithmAllowed(algorithm, shape).ok()) add(Collective::kAllToAll, group, algorithm);
    }
  }
  const GroupShape shape = ShapeOf(Group::kExpertShard, layout, gpus_per_node);
  const bool inside =
      shape.ranks_per_node % layout.expert_sharding_parallel == 0 && gpus_per_node % layout.tensor_parallel == 0;
  if (shape.size > shape.ranks_per_node && inside) {  // ONCE_PER_NODE is allowed.
    for (const Team team : {Team::kNode, Team::kPlace}) {
      add(Collective::kAllToAll, Group::kExpertShard, AllToAllAlgorithm::kDirect, team);
    }
    add(Collective::kAllGather, Group::kExpertShard, AllToAllAlgorithm::kDirect, Team::kPlace);
  }
  for (const Group group : {Group::kTensor, Group::kShard}) {
    for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
      add(collective, group, AllToAllAlgorithm::kDirect);
    }
  }
  return {keys.begin(), keys.end()};
}

std::vector<CollectiveKey> LayerCollectives(const Workload& workload, int gpus_per_node) {
  std::vector<CollectiveKey> keys = LayerCollectives(workload.layer, workload.layout, gpus_per_node);
  CollectiveKey gradients = KeyOf(Collective::kAllReduce, Group::kDenseReplicas, workload.layout, gpus_per_node);
  gradients.bytes_per_element = workload.layer.bytes_per_element;
  if (workload.gradient_bytes > 0 && gradients.group.size > 1 && std::ranges::find(keys, gradients) == keys.end()) {
    keys.push_back(gradients);
  }
  return keys;
}

KernelKey KeyOf(Kernel kernel, const Layer& layer, const Layout& layout) {
  return {.kernel = CountsFlops(kernel) ? KernelOf(layer.expert_kind, BuiltInLike(kernel)) : kernel,
          .bytes_per_element = layer.bytes_per_element,
          .model_dim = layer.model_dim,
          .hidden_dim = layer.hidden_dim / layout.expert_sharding_parallel};
}

KernelKey SharedExpertKey(Kernel kernel, const Layer& layer, const Layout& layout) {
  KernelKey key = KeyOf(kernel, layer, layout);
  key.hidden_dim = layer.shared_hidden_dim / layout.tensor_parallel;
  return key;
}

std::string BriefNumber(double value) {
  char text[32];
  const bool exact = value == std::floor(value) && std::abs(value) < 1e5;
  std::snprintf(text, sizeof text, exact ? "%.0f" : "%.2g", value);
  return text;
}

std::string MeasureCommand(const Layout& layout) {
  std::string named = StrCat("tensorParallel ", layout.tensor_parallel, ", expertParallel ", layout.expert_parallel,
                             ", expertShardingParallel ", layout.expert_sharding_parallel);
  if (layout.context_parallel > 1) named += StrCat(", contextParallel ", layout.context_parallel);
  if (layout.pipeline_parallel > 1) named += StrCat(", pipelineParallel ", layout.pipeline_parallel);
  return StrCat("moeplan calibrate CLUSTER --db DB --layouts GRID.json --json (GRID.json: this workload, layout ",
                named, ")");
}

std::string MissingReason(const std::vector<CostKey>& missing, const Layout& layout) {
  MOEPLAN_CHECK(!missing.empty());
  std::string text = "the profile lacks ";
  for (size_t i = 0; i < missing.size(); ++i) {
    if (i > 0) text += i + 1 == missing.size() ? " and " : ", ";
    text += Describe(missing[i]);
  }
  std::set<int> limits;
  for (const CostKey& key : missing) limits.insert(CtasOf(key));
  if (limits.erase(0) > 0) text += StrCat("; measure with: ", MeasureCommand(layout));
  for (const int ctas : limits) {
    text += StrCat("; measure with: NCCL_MAX_CTAS=", ctas, " before nccl-tests, and moeplan import nccl-tests --ctas ",
                   ctas, " LOG... --json");
  }
  return text;
}

}  // namespace moeplan
