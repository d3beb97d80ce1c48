#include "planner/service/handlers/plan_question.h"

#include <utility>

#include "models/check.h"
#include "models/links/link_model.h"
#include "models/text.h"
#include "planner/routing/plan_routed_layer.h"
#include "planner/rules/lancet.h"
#include "planner/service/deadline.h"
#include "planner/service/errors.h"
#include "proto/convert/plan.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr double kLongestTimeLimitS = 86400;

Status CheckSubject(const v1::PlanRequest& request) {
  if (request.has_graph() && request.has_workload()) return error::BothAlternatives("workload", "graph");
  if (!request.has_workload() && !request.has_graph()) {
    return moeplan::error::Mismatch("workload", "nothing", "an object, or a graph");
  }
  return OkStatus();
}

// Refuses what is asked of the candidates of a layer beside a training graph, which has none.
Status CheckBesideGraph(const v1::PlanRequest& request) {
  const std::pair<const char*, bool> asked[] = {{"top", request.has_top()},
                                                {"budgetNodes", request.has_budget_nodes()},
                                                {"timeLimitS", request.has_time_limit_s()},
                                                {"extrapolate", request.extrapolate()},
                                                {"view", request.view() != v1::PlanRequest::FULL}};
  for (const auto& [field, given] : asked) {
    if (given) return moeplan::error::Mismatch(field, "a value", "none beside graph, which has no candidates");
  }
  return OkStatus();
}

StatusOr<planner::LancetPasses> PassesOf(const v1::PlanRequest& request) {
  planner::LancetPasses passes;
  for (int i = 0; i < request.without_size(); ++i) {
    switch (request.without(i)) {
      case v1::LancetRule::WEIGHT_GRADIENTS: passes.weight_gradients = false; break;
      case v1::LancetRule::PARTITION: passes.partition = false; break;
      default:
        return moeplan::error::UnknownEnum(StrCat("without[", i, "]"), StrCat(int{request.without(i)}),
                                           *v1::LancetRule::Pass_descriptor());
    }
  }
  return passes;
}

StatusOr<int> TopOf(const v1::PlanRequest& request) {
  if (!request.has_top()) return 0;
  if (request.top() < 1) return moeplan::error::Mismatch("top", StrCat(request.top()), "at least 1, or absent for all");
  return request.top();
}

StatusOr<int> BudgetNodesOf(const v1::PlanRequest& request) {
  if (!request.has_budget_nodes()) return planner::kDefaultBudgetNodes;
  if (request.budget_nodes() >= 1) return request.budget_nodes();
  return moeplan::error::Mismatch("budgetNodes", StrCat(request.budget_nodes()), "at least 1, or absent");
}

StatusOr<std::optional<double>> TimeLimitOf(const v1::PlanRequest& request) {
  if (!request.has_time_limit_s()) return std::optional<double>();
  if (request.time_limit_s() > 0 && request.time_limit_s() <= kLongestTimeLimitS) {
    return std::optional<double>(request.time_limit_s());
  }
  return moeplan::error::Mismatch("timeLimitS", StrCat(request.time_limit_s()),
                                  StrCat("above 0 and at most ", kLongestTimeLimitS, ", or absent"));
}

StatusOr<PlanQuestion> QuestionAboutGraph(const v1::PlanRequest& request) {
  RETURN_IF_ERROR(CheckBesideGraph(request));
  PlanQuestion question;
  ASSIGN_OR_RETURN(question.lancet.passes, PassesOf(request));
  ASSIGN_OR_RETURN(TrainingGraph graph, TrainingGraphFromProto(request.graph()));
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  question.about = std::move(graph);
  return question;
}

StatusOr<v1::PlanResponse> AnswerAbout(const TrainingGraph& graph, const planner::LancetOptions& options,
                                       const Profile* profile, std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const GraphPlanAnswer answer, planner::PlanGraph(graph, profile, options, std::move(cancelled)));
  return ToProto(answer);
}

StatusOr<v1::PlanResponse> AnswerAbout(const Workload& workload, const PlanQuestion& question, const Profile& profile,
                                       std::stop_token cancelled) {
  planner::PlanOptions options = question.options;
  std::optional<Deadline> deadline;
  planner::PlanBudget budget = {.nodes = question.budget_nodes, .stop = {.cancelled = std::move(cancelled)}};
  if (question.time_limit_s) budget.stop.out_of_time = deadline.emplace(*question.time_limit_s).token();
  std::optional<LinkModel> links;
  if (question.extrapolate) options.links = &links.emplace(profile);
  ASSIGN_OR_RETURN(const PlanAnswer answer, planner::PlanRoutedLayer(workload, profile, options, budget));
  return ToProto(answer);
}

}  // namespace

StatusOr<PlanQuestion> QuestionOf(const v1::PlanRequest& request) {
  RETURN_IF_ERROR(CheckSubject(request));
  if (request.has_graph()) return QuestionAboutGraph(request);
  if (request.without_size() > 0) {
    return moeplan::error::Mismatch("without", "a value", "none beside workload, whose plan has no passes of Lancet");
  }
  PlanQuestion question = {.extrapolate = request.extrapolate()};
  ASSIGN_OR_RETURN(question.options.top, TopOf(request));
  ASSIGN_OR_RETURN(question.budget_nodes, BudgetNodesOf(request));
  ASSIGN_OR_RETURN(question.time_limit_s, TimeLimitOf(request));
  ASSIGN_OR_RETURN(question.about, WorkloadFromProto(request.workload()));
  return question;
}

bool NeedsProfile(const PlanQuestion& question) {
  const auto* const graph = std::get_if<TrainingGraph>(&question.about);
  return graph == nullptr || planner::NeedsProfile(*graph);
}

StatusOr<v1::PlanResponse> AnswerTo(const PlanQuestion& question, const Profile* profile, std::stop_token cancelled) {
  if (const auto* const graph = std::get_if<TrainingGraph>(&question.about)) {
    return AnswerAbout(*graph, question.lancet, profile, std::move(cancelled));
  }
  MOEPLAN_CHECK(profile != nullptr);
  return AnswerAbout(std::get<Workload>(question.about), question, *profile, std::move(cancelled));
}

}  // namespace moeplan::service
