#include "planner/rules/rule_costs.h"

#include <algorithm>

#include "models/text.h"
#include "models/timeline/cost_index.h"

namespace moeplan::planner {
namespace {

bool AsksNothing(const CostKey& key, double size) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return size == 0 || (collective != nullptr && collective->group.size == 1);
}

}  // namespace

Status StoppedBeforeAnswer(std::string_view rule) {
  return Cancelled(StrCat("planning was stopped before rule ", rule, " had an answer"));
}

void RuleCosts::WriteDown(const char* symbol, const CostKey& key, double size, double time_s) {
  RuleTerm& term = writing_->terms.emplace_back(RuleTerm{.symbol = symbol, .size = size, .time_s = time_s});
  if (!AsksNothing(key, size)) term.cost = CostIndex(profile_).EntryOf(key);
}

void RuleCosts::CountStages(std::span<const double> stage_s, std::span<const int> terms, int chunks) {
  const auto longest = std::ranges::max_element(stage_s) - stage_s.begin();
  auto term = writing_->terms.end();
  for (auto stage = std::ssize(stage_s); stage-- > 0;) {
    for (int i = 0; i < terms[stage]; ++i) (--term)->count = stage == longest ? chunks : 1;
  }
}

}  // namespace moeplan::planner
