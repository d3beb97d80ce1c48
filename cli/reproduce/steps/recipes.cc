#include "cli/reproduce/steps/recipes.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "cli/reproduce/rows.h"
#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/measured_step.h"
#include "cli/reproduce/steps/published.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/advice/advise.h"
#include "planner/advice/layout_words.h"
#include "planner/layout/price_layout.h"
#include "planner/messages/advise.h"
#include "planner/messages/targets.h"
#include "planner/shipped/names.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"

namespace moeplan::cli {
namespace {

constexpr double kNear = 1 / 1.05;  // The least ratio of our step to a published one that is near.

struct Counts {
  int recipes = 0, fit = 0, near = 0, indistinct = 0, of_target = 0, taken = 0, fastest_near = 0;
};

bool IsRecipe(const MeasuredStep& step) { return step.set.starts_with("published-moe") && step.asks.has_value(); }

v1::AdviseRequest RequestOf(const MeasuredStep& step) {
  const LayoutRequest& asked = step.asks->request;
  v1::AdviseRequest request;
  request.set_model_name(step.model);
  request.set_gpus(asked.gpus);
  request.set_global_batch(asked.global_batch);
  request.set_sequence_length(asked.sequence_length);
  request.set_precision(EnumToProto<v1::Precision::Kind>(asked.precision));
  request.set_to(step.trained_with);
  return request;
}

// Names what the source does not say; empty where it says all.
std::string NotSaid(const planner::OpenSettings& open) {
  std::string names;
  for (const auto& [is_open, name] : {std::pair(open.dispatcher, "dispatcher"), std::pair(open.overlap, "overlap"),
                                      std::pair(open.recompute, "recomputation")}) {
    if (is_open) names += StrCat(names.empty() ? "" : ", ", name);
  }
  return names.empty() ? "" : StrCat(" (ours: ", names, ", which the source does not say)");
}

planner::LaunchNumbers NumbersOf(const LayoutRequest& request) {
  return {request.gpus, request.global_batch, request.sequence_length};
}

class Recipes {
 public:
  Recipes(const std::vector<MeasuredStep>& steps, v1::ReproducedTable& table) : table_(table) {
    for (const MeasuredStep& step : steps) {
      if (!IsRecipe(step) || !step.measured_s) continue;
      const MeasuredStep*& fastest = fastest_[step.job];
      if (fastest == nullptr || *step.measured_s < *fastest->measured_s) fastest = &step;
    }
  }

  Status Add(const MeasuredStep& step) {
    const v1::AdviseRequest request = RequestOf(step);
    const std::string job = StrCat(step.system, " ", request.SerializeAsString());
    const std::optional<StepQuestion> completed = Completed(step);
    const StepQuestion& published = completed ? *completed : *step.asks;
    const std::string text = planner::LayoutText(published) + (completed ? NotSaid(step.open) : "");
    if (!seen_.insert(job + planner::LayoutText(*step.asks)).second) return OkStatus();
    ++counts_.recipes;
    Choice choice = {.name = step.name, .paper = text};
    const StatusOr<StepAnswer> theirs = planner::PriceLayout(published, *step.profile);
    const bool fits = theirs.ok() && theirs->missing_bytes <= 0;
    counts_.fit += fits ? 1 : 0;
    std::string against = Refusals(step, published);
    if (!theirs.ok()) against += theirs.status().message() + "; ";
    if (theirs.ok() && !fits) {
      against += StrCat("it is predicted not to fit: a GPU lacks ", BriefNumber(theirs->missing_bytes / 1e9), " GB; ");
    }
    auto known = advice_.find(job);
    if (known == advice_.end()) {
      auto answer = planner::AnswerAdvise(
          request, step.asks->request.model, [&](const ModelConfig&, int) { return *step.profile; }, DefaultThreads());
      known = advice_.emplace(job, std::move(answer)).first;
    }
    if (!known->second.ok()) {
      choice.why = against + known->second.status().message();
    } else if (theirs.ok()) {
      RETURN_IF_ERROR(Compare(step, published, *theirs, known->second->result(), choice));
      choice.why = against + choice.why;
    } else {
      choice.why = against;
    }
    if (choice.why.ends_with("; ")) choice.why.resize(choice.why.size() - 2);
    AddRow(table_, choice);
    return OkStatus();
  }

  void AddCounts() {
    const auto count = [&](const char* name, int of_all, int ours) {
      AddRow(table_, Figure{.name = name, .unit = kCount, .paper = of_all, .ours = ours, .why = ""});
    };
    count("layouts that are legal and fit", counts_.recipes, counts_.fit);
    count("layouts that fit within 5 % of ours", counts_.recipes, counts_.near);
    count("layouts whose 90 % interval reaches ours", counts_.recipes, counts_.indistinct);
    count("layouts that their training system takes", counts_.of_target, counts_.taken);
    count("jobs whose fastest layout is within 5 % of ours", static_cast<int>(fastest_.size()), counts_.fastest_near);
  }

 private:
  // The layout with what its source does not say as the adviser sets it. Absent: nothing fits and is taken.
  static std::optional<StepQuestion> Completed(const MeasuredStep& step) {
    const LayoutRequest& asked = step.asks->request;
    planner::AdviceRequest request = {.model = asked.model,
                                      .gpus = asked.gpus,
                                      .global_batch = asked.global_batch,
                                      .sequence_length = asked.sequence_length,
                                      .precision = asked.precision,
                                      .zero_stage = asked.zero_stage,
                                      .mine = step.asks};
    const StatusOr<planner::Target> target = planner::TargetOf(step.trained_with, "");
    if (target.ok()) {
      request.takes = [&](const StepQuestion& question) {
        return planner::Export(*target, StepLayoutOf(question), asked.model, NumbersOf(asked)).violations().empty();
      };
    }
    return planner::Completed(request, step.open, *step.profile);
  }

  // Says how long the fastest run of the same job took, where that was another.
  std::string MeasuredOtherwise(const MeasuredStep& step) const {
    const auto found = fastest_.find(step.job);
    if (!step.measured_s || found == fastest_.end()) return "";
    const MeasuredStep& fastest = *found->second;
    const double ratio = *fastest.measured_s / *step.measured_s;
    if (ratio > kNear) return "";
    return StrCat("; ", fastest.name, " was measured to take ", BriefNumber(std::round(ratio * 100) / 100), " of it");
  }

  // The rules of its training system that it breaks, to begin a reason with.
  std::string Refusals(const MeasuredStep& step, const StepQuestion& published) {
    if (step.trained_with.empty()) return "";
    const StatusOr<planner::Target> target = planner::TargetOf(step.trained_with, "");
    if (!target.ok()) return "";
    ++counts_.of_target;
    const auto exported =
        planner::Export(*target, StepLayoutOf(published), published.request.model, NumbersOf(published.request));
    counts_.taken += exported.violations().empty() ? 1 : 0;
    std::string refusals;
    for (const v1::BrokenRule& broken : exported.violations()) {
      refusals += StrCat(step.trained_with, " refuses it: ", broken.rule(), "; ");
    }
    return refusals;
  }

  Status Compare(const MeasuredStep& step, const StepQuestion& published, const StepAnswer& theirs,
                 const v1::Advice& advice, Choice& choice) {
    StepQuestion ours;
    ours.request = step.asks->request;
    ours.request.recompute_modules = {};
    RETURN_IF_ERROR(ReadStepLayout(advice.layout(), "layout", ours));
    ours.request.next_tokens = published.request.next_tokens;  // What is trained is no decision.
    ASSIGN_OR_RETURN(const StepRatio ratio, planner::CompareLayouts(published, ours, *step.profile));
    choice.ours = advice.text();
    choice.ratio = ratio.ratio;
    const bool near = ratio.ratio >= kNear;
    const bool counts = near && theirs.missing_bytes <= 0;
    const auto fastest = fastest_.find(step.job);
    counts_.near += counts ? 1 : 0;
    const bool is_fastest =
        fastest != fastest_.end() && planner::LayoutText(*fastest->second->asks) == planner::LayoutText(*step.asks);
    counts_.fastest_near += counts && is_fastest ? 1 : 0;
    counts_.indistinct += ratio.high >= 1 && theirs.missing_bytes <= 0 ? 1 : 0;
    if (!near) {
      choice.why = StrCat("ours takes ", planner::RatioText(ratio), planner::WhereText(ratio.other, theirs),
                          MeasuredOtherwise(step));
    }
    return OkStatus();
  }

  v1::ReproducedTable& table_;
  std::map<std::string, const MeasuredStep*> fastest_;  // By job: the one that took the shortest.
  std::set<std::string> seen_;
  std::map<std::string, StatusOr<v1::AdviseResponse>> advice_;
  Counts counts_;
};

}  // namespace

StatusOr<v1::ReproducedTable> ReproduceRecipes(const DataFolder& folder,
                                               const std::function<void(double, const std::string&)>& progress) {
  Constants constants;
  ASSIGN_OR_RETURN(const std::vector<MeasuredStep> steps, PublishedSteps(folder, constants));
  v1::ReproducedTable table = MakeTable("recipes", "layouts of published pre-training jobs with experts, beside ours");
  Recipes recipes(steps, table);
  double done = 0;
  for (const MeasuredStep& step : steps) {
    progress(done++ / static_cast<double>(steps.size()), step.name);
    if (IsRecipe(step)) RETURN_IF_ERROR(recipes.Add(step));
  }
  recipes.AddCounts();
  return table;
}

}  // namespace moeplan::cli
