#include "planner/rules/step_alternatives.h"

#include <algorithm>
#include <utility>

#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/price_layout.h"
#include "planner/rules/choices.h"

namespace moeplan::planner {
namespace {

// The layer and its profile as the step has them.
StatusOr<std::vector<PaperChoice>> ChoicesOfLayer(const StepQuestion& question, const Profile& profile) {
  const LayoutRequest& request = question.request;
  Profile on_gpus = profile;
  on_gpus.cluster = ClusterOf(request, profile.cluster);
  ASSIGN_OR_RETURN(const LayoutPoint point, PointOf(request, on_gpus.cluster, question.layout, question.micro_batch,
                                                    question.horizontal_contexts));
  const Workload layer = WorkloadOf(request, planner::QuestionOf(request, point));
  CostBook book(on_gpus, request.model.model_dim, request.bytes_per_element);
  Profile of_layer = book.ForLayer(layer.layer, layer.layout);
  of_layer.cluster = on_gpus.cluster;
  ASSIGN_OR_RETURN(const Workload resolved, ResolveWorkload(layer, of_layer.cluster));
  return ChoicesOfPapers(resolved, of_layer);
}

}  // namespace

StatusOr<std::vector<StepAlternative>> StepAlternatives(const StepQuestion& question, const Profile& profile) {
  std::vector<StepAlternative> choices;
  const auto add = [&](const std::string& name, const StepAnswer& step) {
    const Knobs& moe = step.layout.moe;
    if (step.missing_bytes > 0) return;
    choices.push_back({name, moe.family, std::max(moe.chunks, moe.partition_degree), step.layout.step_time_s});
  };
  StepQuestion lancet = question;
  lancet.lancet = true;
  ASSIGN_OR_RETURN(const StepAnswer under_lancet, PriceLayout(lancet, profile));
  ASSIGN_OR_RETURN(const StepAnswer best_layers, PriceLayout(question, profile));
  add("one piece", under_lancet);
  if (!choices.empty()) choices.back().step_s = under_lancet.lancet->without_step_s;
  ASSIGN_OR_RETURN(const std::vector<PaperChoice> papers, ChoicesOfLayer(question, profile));
  for (const PaperChoice& paper : papers) {
    if (paper.paper == kCutRange) continue;
    StepQuestion of_paper = question;
    of_paper.schedule = paper.knobs.family;
    of_paper.chunks = paper.knobs.chunks;
    of_paper.partition_degree = paper.knobs.partition_degree;
    const StatusOr<StepAnswer> step = PriceLayout(of_paper, profile);
    if (step.ok()) add(paper.paper, *step);
  }
  add("lancet", under_lancet);
  add("layers", best_layers);
  if (choices.empty()) return choices;
  StepAlternative joint = *std::ranges::min_element(choices, {}, &StepAlternative::step_s);
  joint.name = "joint";
  choices.push_back(std::move(joint));
  return choices;
}

}  // namespace moeplan::planner
