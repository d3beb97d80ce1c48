#include "planner/rules/explain_rules.h"

#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"

namespace moeplan::planner {
namespace {

template <typename Ask>
ExplainedRule Explained(const char* name, const char* source, const Ask& ask) {
  ExplainedRule explained = {.rule = name, .source = source};
  PriceNotes notes;
  const auto answer = ask(notes, &explained);
  if (answer.ok()) return explained;
  explained.times.clear();
  explained.skipped = answer.status().message();
  return explained;
}

}  // namespace

std::vector<ExplainedRule> ExplainRulesOf(const Workload& workload, const Profile& profile, const StopSignals& stop) {
  return {Explained("parm", "Parm, Algorithm 1",
                    [&](PriceNotes& notes, ExplainedRule* explained) {
                      return ParmRule(workload, profile, notes, explained);
                    }),
          Explained("monta", "MoNTA, Algorithms 1 to 3",
                    [&](PriceNotes& notes, ExplainedRule* explained) {
                      return MontaRule(workload, profile, notes, explained, stop);
                    }),
          Explained("schemoe", "ScheMoE, Theorem 1 (OptSche)", [&](PriceNotes& notes, ExplainedRule* explained) {
            return SchemoeRule(workload, profile, notes, explained, stop);
          })};
}

}  // namespace moeplan::planner
