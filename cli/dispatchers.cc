#include "cli/dispatchers.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "cli/known_names.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "moeplan/v1/advice.pb.h"
#include "planner/advice/crossover.h"
#include "planner/advice/layout_words.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/enum_names.h"

namespace moeplan::cli {
namespace {

std::vector<std::string> SplitAt(const std::string& text, char sign) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t end = std::min(text.size(), text.find(sign, start));
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Status ReadSweep(const std::vector<std::string>& sweep, planner::CrossoverRequest& request) {
  const std::string expected = "expected one of microBatch=, expertParallel=, gpus= or expertImbalance= with values";
  if (sweep.size() != 1) return InvalidInput(StrCat("--sweep: found ", sweep.size(), ", ", expected));
  const size_t equals = sweep[0].find('=');
  const auto axis = planner::CrossoverAxisOf(sweep[0].substr(0, equals));
  if (!axis || equals == std::string::npos) return InvalidInput(StrCat("--sweep: found '", sweep[0], "', ", expected));
  request.axis = *axis;
  for (const std::string& text : SplitAt(sweep[0].substr(equals + 1), ',')) {
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(value)) {
      return InvalidInput(StrCat("--sweep: found '", text, "', expected a number"));
    }
    request.values.push_back(value);
  }
  return OkStatus();
}

Status ReadDispatchers(const std::string& text, planner::CrossoverRequest& request) {
  if (text.empty()) return OkStatus();
  request.dispatchers.clear();
  const auto& type = *v1::Dispatcher::Kind_descriptor();
  for (const std::string& name : SplitAt(text, ',')) {
    const std::optional<int> number = EnumNumber(type, name);
    if (!number) {
      return InvalidInput(
          StrCat("--dispatchers: found '", name, "', expected ALL_TO_ALL, ALL_GATHER, DEEPEP or HYBRID_EP"));
    }
    ASSIGN_OR_RETURN(const auto dispatcher,
                     EnumFromProto<Dispatcher>(static_cast<v1::Dispatcher::Kind>(*number), "--dispatchers"));
    request.dispatchers.push_back(dispatcher);
  }
  return OkStatus();
}

v1::Dispatcher::Kind KindOf(Dispatcher dispatcher) { return EnumToProto<v1::Dispatcher::Kind>(dispatcher); }

v1::DispatcherCrossover MessageOf(const planner::Crossover& crossover, planner::CrossoverAxis axis) {
  v1::DispatcherCrossover message;
  message.set_path(std::string(planner::Name(axis)));
  for (const planner::CrossoverPoint& point : crossover.points) {
    v1::DispatcherPoint& one = *message.add_points();
    one.set_value(point.value);
    for (const planner::DispatcherStep& step : point.steps) {
      v1::DispatcherStep& entry = *one.add_steps();
      entry.set_dispatcher(KindOf(step.dispatcher));
      if (step.step_s) entry.set_step_time_s(*step.step_s);
      entry.set_reason(step.reason);
    }
    if (point.best) one.set_best(KindOf(*point.best));
    if (point.runner_up) one.set_runner_up(KindOf(*point.runner_up));
    one.set_ratio(point.ratio.ratio);
    one.set_low(point.ratio.low);
    one.set_high(point.ratio.high);
    one.set_decided(point.decided());
  }
  for (const planner::Flip& flip : crossover.flips) {
    v1::DispatcherFlip& one = *message.add_flips();
    one.set_from(KindOf(flip.from));
    one.set_to(KindOf(flip.to));
    one.set_before(flip.before);
    one.set_after(flip.after);
    if (flip.surely_before) one.set_surely_before(*flip.surely_before);
    if (flip.surely_after) one.set_surely_after(*flip.surely_after);
  }
  return message;
}

void PrintCrossover(const planner::Crossover& crossover, const planner::CrossoverRequest& request) {
  std::vector<std::vector<std::string>> rows = {{std::string(planner::Name(request.axis))}};
  for (const Dispatcher dispatcher : request.dispatchers) rows[0].emplace_back(Name(dispatcher));
  rows[0].insert(rows[0].end(), {"next over best", "90 %"});
  std::set<std::string> reasons;
  for (const planner::CrossoverPoint& point : crossover.points) {
    std::vector<std::string> cells = {StrCat(point.value)};
    for (const planner::DispatcherStep& step : point.steps) {
      const bool best = point.best == step.dispatcher;
      cells.push_back(step.step_s ? StrCat(best ? "*" : "", Duration(*step.step_s)) : "-");
      if (!step.reason.empty()) reasons.insert(step.reason);
    }
    char ratio[32] = "", interval[48] = "";
    if (point.runner_up) {
      std::snprintf(ratio, sizeof ratio, "%.3f", point.ratio.ratio);
      std::snprintf(interval, sizeof interval, "%.2f to %.2f", point.ratio.low, point.ratio.high);
    }
    cells.insert(cells.end(), {ratio, interval});
    rows.push_back(std::move(cells));
  }
  std::printf("%s\n* the fastest\n", Table(rows).c_str());
  for (const planner::Flip& flip : crossover.flips) {
    std::printf("from %s to %s between %s and %s", std::string(Name(flip.from)).c_str(),
                std::string(Name(flip.to)).c_str(), StrCat(flip.before).c_str(), StrCat(flip.after).c_str());
    if (flip.surely_before) std::printf("; surely the first up to %s", StrCat(*flip.surely_before).c_str());
    if (flip.surely_after) std::printf("; surely the second from %s", StrCat(*flip.surely_after).c_str());
    if (!flip.surely_before && !flip.surely_after) std::printf("; at no value does the 90 %% interval tell them apart");
    std::printf("\n");
  }
  if (crossover.flips.empty()) std::printf("the fastest is the same at all values\n");
  PrintWarnings({reasons.begin(), reasons.end()});
}

}  // namespace

Status CompareDispatchers(const DispatcherOptions& options, const SourceOption& source,
                          const std::vector<std::string>& sweep, bool json) {
  planner::CrossoverRequest request;
  LayoutRequest& step = request.question.request;
  ASSIGN_OR_RETURN(step.model, ModelOf(options.model));
  step.gpus = options.gpus;
  step.global_batch = options.global_batch;
  step.sequence_length = options.sequence_length;
  ASSIGN_OR_RETURN(const v1::StepLayout layout, ReadLayout(options.layout, "--layout"));
  RETURN_IF_ERROR(ReadStepLayout(layout, "layout", request.question));
  RETURN_IF_ERROR(ReadSweep(sweep, request));
  RETURN_IF_ERROR(ReadDispatchers(options.dispatchers, request));
  ASSIGN_OR_RETURN(const planner::Crossover crossover,
                   planner::FindCrossover(request, [&](int gpus) { return source.LoadProfileFor(step.model, gpus); }));
  if (json) {
    PrintJson(MessageOf(crossover, request.axis));
  } else {
    PrintCrossover(crossover, request);
  }
  return OkStatus();
}

}  // namespace moeplan::cli
