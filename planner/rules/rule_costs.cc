#include "planner/rules/rule_costs.h"

#include <algorithm>

#include "models/timeline/cost_index.h"

namespace moeplan {
namespace {

// The key of the entry whose model this is.
template <typename Entries>
std::optional<CostKey> KeyOfModel(const Entries& entries, const CostModel* model) {
  for (const auto& entry : entries) {
    if (&entry.model == model) return entry.key;
  }
  return std::nullopt;
}

bool AsksNothing(const CostKey& key, double size) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return size == 0 || (collective != nullptr && collective->group.size == 1);
}

}  // namespace

void RuleCosts::WriteDown(const char* symbol, const CostKey& key, double size, double time_s) {
  RuleTerm& term = writing_->terms.emplace_back(RuleTerm{.symbol = symbol, .size = size, .time_s = time_s});
  if (AsksNothing(key, size)) return;
  CostIndex index(profile_);
  const CostModel* model = index.SourceOf(key).model;
  if (model == nullptr) return;
  term.cost = KeyOfModel(profile_.collectives, model);
  if (!term.cost) term.cost = KeyOfModel(profile_.kernels, model);
}

void RuleCosts::CountStages(std::span<const double> stage_s, std::span<const int> terms, int chunks) {
  const auto longest = std::ranges::max_element(stage_s) - stage_s.begin();
  auto term = writing_->terms.end();
  for (auto stage = std::ssize(stage_s); stage-- > 0;) {
    for (int i = 0; i < terms[stage]; ++i) (--term)->count = stage == longest ? chunks : 1;
  }
}

}  // namespace moeplan
