#include "planner/service/handlers/explain_rules.h"

#include <optional>
#include <utility>
#include <variant>

#include "models/cost/operation.h"
#include "models/links/link_model.h"
#include "models/timeline/cost_index.h"
#include "planner/rules/explain_rules.h"
#include "planner/search/price_plan.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

bool Has(const Profile& profile, const CostKey& key) {
  return std::visit([&](const auto& one) { return Find(profile, one) != nullptr; }, key);
}

v1::RuleTerm ToProto(const planner::RuleTerm& term, CostIndex& measured) {
  v1::RuleTerm message;
  message.set_symbol(term.symbol);
  if (term.cost) {
    message.set_cost(Describe(*term.cost));
    message.set_foretold(!Has(measured.profile(), *term.cost));
    if (const auto stand_in = message.foretold() ? planner::StandInOf(*term.cost, measured) : std::nullopt)
      message.set_stand_in(Describe(*stand_in));
  }
  message.set_size(term.size);
  message.set_time_s(term.time_s);
  message.set_count(term.count);
  return message;
}

v1::RuleTime ToProto(const planner::RuleTime& time, CostIndex& measured) {
  v1::RuleTime message;
  message.set_name(time.name);
  message.set_formula(time.formula);
  for (const planner::RuleTerm& term : time.terms) *message.add_terms() = ToProto(term, measured);
  message.set_time_s(time.time_s);
  message.set_chosen(time.chosen);
  return message;
}

v1::ExplainedRule ToProto(const planner::ExplainedRule& rule, CostIndex& measured) {
  v1::ExplainedRule message;
  message.set_rule(rule.rule);
  message.set_source(rule.source);
  for (const std::string& definition : rule.definitions) message.add_definitions(definition);
  for (const planner::RuleTime& time : rule.times) *message.add_times() = ToProto(time, measured);
  message.set_skipped(rule.skipped);
  return message;
}

}  // namespace

StatusOr<v1::ExplainRulesResponse> ExplainRules(const Environment& environment, const v1::ExplainRulesRequest& request,
                                                std::stop_token cancelled) {
  if (!request.has_workload()) return moeplan::error::Mismatch("workload", "nothing", "an object");
  ASSIGN_OR_RETURN(const Workload asked, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Profile profile, environment.store.LoadProfile(SelectionOf(request)));
  ASSIGN_OR_RETURN(const Workload workload, ResolveWorkload(asked, profile.cluster));
  v1::ExplainRulesResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  Profile filled = profile;
  if (request.extrapolate()) {
    PriceNotes notes;
    planner::FillIn(LinkModel(profile), workload, filled, notes);
  }
  CostIndex measured(profile);
  const planner::StopSignals stop = {.cancelled = std::move(cancelled), .out_of_time = {}};
  for (const planner::ExplainedRule& rule : planner::ExplainRulesOf(workload, filled, stop))
    *response.add_rules() = ToProto(rule, measured);
  return response;
}

}  // namespace moeplan::service
