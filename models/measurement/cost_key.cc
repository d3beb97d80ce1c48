#include "models/measurement/cost_key.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>
#include <utility>

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
  const auto add = [&](Collective collective, Group group, AllToAllAlgorithm algorithm) {
    CollectiveKey key = KeyOf(collective, group, layout, gpus_per_node);
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

namespace {

CollectiveKey EssentialOf(CollectiveKey key) {
  key.bytes_per_element.reset();
  return key;
}

KernelKey EssentialOf(KernelKey key) {
  if (CountsFlops(key.kernel)) return key;
  key.hidden_dim.reset();
  if (key.kernel == Kernel::kGate || key.kernel == Kernel::kPermute || CodecOf(key.kernel) != Codec::kNone) return key;
  key.bytes_per_element.reset();
  key.model_dim.reset();
  return key;
}

}  // namespace

CostKey Essential(const CostKey& key) {
  return std::visit([](const auto& one) -> CostKey { return EssentialOf(one); }, key);
}

Contention ContentionOf(const CostKey& key) {
  return std::visit([](const auto& one) { return one.contention; }, key);
}

int CtasOf(const CostKey& key) {
  return std::visit([](const auto& one) { return one.ctas; }, key);
}

CostKey WithContention(CostKey key, Contention contention, int ctas_beside) {
  std::visit([&](auto& one) { one.contention = contention; }, key);
  if (auto* kernel = std::get_if<KernelKey>(&key)) kernel->ctas = IsCommunication(contention) ? ctas_beside : 0;
  return key;
}

CostKey WithoutCtas(CostKey key) {
  std::visit([](auto& one) { one.ctas = 0; }, key);
  return key;
}

std::string Describe(const CostKey& key) {
  return std::visit([](const auto& one) { return Describe(one); }, key);
}

namespace {

// "NAME value NAME value ..." behind the operation's own name; absent where a name has no value.
std::optional<std::vector<std::pair<std::string, std::string>>> FieldsOf(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::istringstream words{std::string(text)};
  for (std::string name, value; words >> name; fields.emplace_back(name, value)) {
    if (!(words >> value)) return std::nullopt;
  }
  return fields;
}

std::optional<int> WholeNumber(const std::string& text) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool SetField(const std::string& name, const std::string& value, CollectiveKey& key) {
  if (name == "algorithm") {
    const auto algorithm = NamedValue<AllToAllAlgorithm>(value);
    key.algorithm = algorithm.value_or(AllToAllAlgorithm::kDirect);
    return algorithm.has_value();
  }
  const std::optional<int> number = WholeNumber(value);
  if (!number) return false;
  if (name == "groupSize") return (key.group.size = *number, true);
  if (name == "ranksPerNode") return (key.group.ranks_per_node = *number, true);
  if (name == "gatherGroupSize") return (key.gather_group_size = *number, true);
  if (name == "shards") return (key.shards = *number, true);
  return false;
}

bool SetField(const std::string& name, const std::string& value, KernelKey& key) {
  const std::optional<int> number = WholeNumber(value);
  if (name == "modelDim") key.model_dim = number;
  if (name == "hiddenDim") key.hidden_dim = number;
  return number && (name == "modelDim" || name == "hiddenDim");
}

template <typename Key>
std::optional<CostKey> WithFields(Key key, std::string_view text) {
  const auto fields = FieldsOf(text);
  if (!fields) return std::nullopt;
  for (const auto& [name, value] : *fields) {
    const std::optional<int> number = WholeNumber(value);
    if (name == "contention") {
      const auto contention = NamedValue<Contention>(value);
      if (!contention) return std::nullopt;
      key.contention = *contention;
    } else if (name == "bytesPerElement" && number) {
      key.bytes_per_element = number;
    } else if (name == "ctas" && number) {
      key.ctas = *number;
    } else if (!SetField(name, value, key)) {
      return std::nullopt;
    }
  }
  return key;
}

}  // namespace

std::optional<CostKey> NamedCost(std::string_view text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string name(text.substr(0, end));
  std::optional<CostKey> key;
  if (const auto collective = NamedValue<Collective>(name)) {
    key = WithFields(CollectiveKey{.collective = *collective}, text.substr(end));
  } else if (const auto kernel = NamedValue<Kernel>(name)) {
    key = WithFields(KernelKey{.kernel = *kernel}, text.substr(end));
  }
  // Whatever is missing, twice or in another order: there is one text for a key.
  if (!key || Describe(*key) != text) return std::nullopt;
  return key;
}

std::string_view UnitOf(const CostKey& key) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  return kernel && CountsFlops(kernel->kernel) ? "flops" : "bytes";
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
