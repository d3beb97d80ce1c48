// How the papers' rules come to their times for one layer.
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/workload/workload.h"
#include "planner/rules/explained_rule.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// Of the rules of layers, in the order of RuleAnswers. The times are those that the rules answer, and their terms were
// written down by the same look-ups: where a formula is a sum, counts times times add up to it. A rule that is stopped
// is skipped. Requires a workload resolved against profile.cluster, and a validated profile. Pure.
std::vector<ExplainedRule> ExplainRulesOf(const Workload& workload, const Profile& profile,
                                          const StopSignals& stop = {});

}  // namespace moeplan::planner
