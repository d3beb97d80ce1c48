#include "planner/rules/explain_rules.h"

#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"

namespace moeplan {
namespace {

template <typename Rule>
ExplainedRule Explained(const char* name, const char* source, const Rule& rule, const Workload& workload,
                        const Profile& profile) {
  ExplainedRule explained = {.rule = name, .source = source};
  PriceNotes notes;
  const auto answer = rule(workload, profile, notes, &explained);
  if (answer.ok()) return explained;
  explained.times.clear();
  explained.skipped = answer.status().message();
  return explained;
}

}  // namespace

std::vector<ExplainedRule> ExplainRulesOf(const Workload& workload, const Profile& profile) {
  return {Explained("parm", "Parm, Algorithm 1", ParmRule, workload, profile),
          Explained("monta", "MoNTA, Algorithms 1 to 3", MontaRule, workload, profile),
          Explained("schemoe", "ScheMoE, Theorem 1 (OptSche)", SchemoeRule, workload, profile)};
}

}  // namespace moeplan
