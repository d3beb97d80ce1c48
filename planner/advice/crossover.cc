#include "planner/advice/crossover.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/price_layout.h"

namespace moeplan::planner {
namespace {

constexpr std::string_view kAxes[] = {"microBatch", "expertParallel", "gpus", "expertImbalance"};

Status CheckRequest(const CrossoverRequest& request) {
  if (request.question.request.model.moe_layers() == 0) {
    return InvalidInput("model: found no experts, expected some, since nothing is dispatched without");
  }
  if (request.values.empty() || request.values.size() > kMostCrossoverValues) {
    return InvalidInput(StrCat("axis: found ", request.values.size(), " values, expected 1 to ", kMostCrossoverValues));
  }
  for (size_t i = 0; i < request.values.size(); ++i) {
    const double value = request.values[i];
    const bool whole = request.axis == CrossoverAxis::kExpertImbalance || value == std::floor(value);
    if (!(value >= 1 && value <= 1e9) || !whole || (i > 0 && value <= request.values[i - 1])) {
      return InvalidInput(StrCat("axis: ", Name(request.axis), ": found ", value, ", expected rising ",
                                 whole ? "numbers" : "whole numbers", " from 1"));
    }
  }
  return OkStatus();
}

StepQuestion At(const CrossoverRequest& request, double value, Dispatcher dispatcher) {
  StepQuestion question = request.question;
  question.schedule.reset(), question.chunks.reset(), question.partition_degree.reset();
  question.lancet = false;
  question.layout.data_parallel = 0;
  question.request.as_frameworks = true;
  question.request.dispatcher = dispatcher;
  if (!SendsOnceToANode(dispatcher)) question.request.transport = Transport::kNccl;
  switch (request.axis) {
    case CrossoverAxis::kMicroBatch: question.micro_batch = static_cast<int>(value); break;
    case CrossoverAxis::kExpertParallel: question.layout.expert_parallel = static_cast<int>(value); break;
    case CrossoverAxis::kExpertImbalance: question.request.capacity_factor = value; break;
    case CrossoverAxis::kGpus: {
      const double samples = 1.0 * question.request.global_batch / question.request.gpus;
      question.request.gpus = static_cast<int>(value);
      question.request.global_batch = std::max(1, static_cast<int>(std::lround(samples * value)));
    }
  }
  return question;
}

DispatcherStep StepOf(const StepQuestion& question, const Profile& profile, const StopSignals& stop) {
  DispatcherStep one = {.dispatcher = question.request.dispatcher};
  const StatusOr<StepAnswer> answer = PriceLayout(question, profile, stop);
  if (!answer.ok()) {
    one.reason = answer.status().message();
  } else if (answer->missing_bytes > 0) {
    one.reason = StrCat("a GPU lacks ", BriefNumber(answer->missing_bytes), " bytes");
  } else {
    one.step_s = answer->layout.step_time_s;
  }
  return one;
}

// Compares two dispatchers at a value: 1 where the interval says that the first is faster, -1 that the second is, 0
// where it says neither.
int FasterSurely(const CrossoverRequest& request, double value, Dispatcher one, Dispatcher other,
                 const Profile& profile, const StopSignals& stop) {
  const auto ratio = CompareLayouts(At(request, value, one), At(request, value, other), profile, stop);
  if (!ratio.ok()) return 0;
  return ratio->low > 1 ? 1 : ratio->high < 1 ? -1 : 0;
}

}  // namespace

std::string_view Name(CrossoverAxis axis) { return kAxes[static_cast<size_t>(axis)]; }

std::optional<CrossoverAxis> CrossoverAxisOf(std::string_view name) {
  const auto* const found = std::ranges::find(kAxes, name);
  if (found == std::end(kAxes)) return std::nullopt;
  return static_cast<CrossoverAxis>(found - std::begin(kAxes));
}

StatusOr<Crossover> FindCrossover(const CrossoverRequest& request,
                                  const std::function<StatusOr<Profile>(int gpus)>& profile_of,
                                  const StopSignals& stop) {
  RETURN_IF_ERROR(CheckRequest(request));
  Crossover crossover;
  std::vector<Profile> profiles;
  bool any = false;
  std::string reason;
  for (const double value : request.values) {
    const int gpus = At(request, value, Dispatcher::kAllToAll).request.gpus;
    ASSIGN_OR_RETURN(Profile profile, profile_of(gpus));
    profiles.push_back(std::move(profile));
    CrossoverPoint point = {.value = value};
    std::multimap<double, Dispatcher> by_time;
    for (const Dispatcher dispatcher : request.dispatchers) {
      if (stop.Requested()) return Cancelled("the comparison of dispatchers was cancelled");
      point.steps.push_back(StepOf(At(request, value, dispatcher), profiles.back(), stop));
      if (stop.Requested()) return Cancelled("the comparison of dispatchers was cancelled");
      const DispatcherStep& step = point.steps.back();
      if (step.step_s) by_time.emplace(*step.step_s, dispatcher);
      if (!step.step_s && reason.empty()) reason = step.reason;
    }
    if (!by_time.empty()) point.best = by_time.begin()->second, any = true;
    if (by_time.size() > 1) {
      point.runner_up = std::next(by_time.begin())->second;
      ASSIGN_OR_RETURN(point.ratio, CompareLayouts(At(request, value, *point.best),
                                                   At(request, value, *point.runner_up), profiles.back(), stop));
    }
    crossover.points.push_back(std::move(point));
  }
  if (!any) return InvalidInput(StrCat("no dispatcher has a price at any value: ", reason));
  // Flips between the same two dispatchers ask the same.
  std::map<std::tuple<size_t, Dispatcher, Dispatcher>, int> known;
  for (size_t i = 1; i < crossover.points.size(); ++i) {
    const CrossoverPoint &before = crossover.points[i - 1], &after = crossover.points[i];
    if (!before.best || !after.best || *before.best == *after.best) continue;
    Flip flip = {.from = *before.best, .to = *after.best, .before = before.value, .after = after.value};
    for (size_t j = 0; j < crossover.points.size(); ++j) {
      const double value = request.values[j];
      const auto [entry, fresh] = known.try_emplace({j, flip.from, flip.to}, 0);
      if (fresh) entry->second = FasterSurely(request, value, flip.from, flip.to, profiles[j], stop);
      if (stop.Requested()) return Cancelled("the comparison of dispatchers was cancelled");
      const int surely = entry->second;
      if (surely > 0 && j < i) flip.surely_before = value;
      if (surely < 0 && j >= i && !flip.surely_after) flip.surely_after = value;
    }
    crossover.flips.push_back(flip);
  }
  return crossover;
}

}  // namespace moeplan::planner
