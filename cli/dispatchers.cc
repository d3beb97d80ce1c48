#include "cli/dispatchers.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "cli/named_model.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/messages/dispatchers.h"
#include "proto/enum_names.h"

namespace moeplan::cli {
namespace {

// The names with commas as the request takes them.
Status ReadDispatchers(const std::string& text, v1::CompareDispatchersRequest& request) {
  for (size_t start = 0; !text.empty() && start <= text.size();) {
    const size_t end = std::min(text.size(), text.find(',', start));
    const std::string name = text.substr(start, end - start);
    const std::optional<int> number = EnumNumber(*v1::Dispatcher::Kind_descriptor(), name);
    if (!number) {
      return InvalidInput(
          StrCat("--dispatchers: found '", name, "', expected ALL_TO_ALL, ALL_GATHER, DEEPEP or HYBRID_EP"));
    }
    request.add_dispatchers(static_cast<v1::Dispatcher::Kind>(*number));
    start = end + 1;
  }
  return OkStatus();
}

std::string NameOf(v1::Dispatcher::Kind kind) { return v1::Dispatcher::Kind_Name(kind); }

void PrintCrossover(const v1::DispatcherCrossover& crossover) {
  std::vector<std::vector<std::string>> rows = {{crossover.path()}};
  for (const v1::DispatcherStep& step : crossover.points(0).steps()) rows[0].push_back(NameOf(step.dispatcher()));
  rows[0].insert(rows[0].end(), {"next/best", "90 %"});
  std::set<std::string> reasons;
  for (const v1::DispatcherPoint& point : crossover.points()) {
    std::vector<std::string> cells = {StrCat(point.value())};
    for (const v1::DispatcherStep& step : point.steps()) {
      const bool best = point.has_best() && point.best() == step.dispatcher();
      cells.push_back(step.has_step_time_s() ? StrCat(best ? "*" : "", Duration(step.step_time_s())) : "-");
      if (!step.reason().empty()) reasons.insert(step.reason());
    }
    char ratio[32] = "", interval[48] = "";
    if (point.has_runner_up()) {
      std::snprintf(ratio, sizeof ratio, "%.3f", point.ratio());
      std::snprintf(interval, sizeof interval, "%.2f to %.2f", point.low(), point.high());
    }
    cells.insert(cells.end(), {ratio, interval});
    rows.push_back(std::move(cells));
  }
  std::printf("%s\n* the fastest\n", Table(rows).c_str());
  for (const v1::DispatcherFlip& flip : crossover.flips()) {
    std::string line = StrCat("from ", NameOf(flip.from()), " to ", NameOf(flip.to()), " between ", flip.before(),
                              " and ", flip.after());
    if (flip.has_surely_before()) line += StrCat("; surely the first up to ", flip.surely_before());
    if (flip.has_surely_after()) line += StrCat("; surely the second from ", flip.surely_after());
    if (!flip.has_surely_before() && !flip.has_surely_after()) {
      line += "; at no value does the 90 % interval tell them apart";
    }
    std::printf("%s\n", line.c_str());
  }
  if (crossover.flips().empty()) std::printf("the fastest is the same at all values that have a price\n");
  PrintWarnings({reasons.begin(), reasons.end()});
}

}  // namespace

Status CompareDispatchers(const DispatcherOptions& options, const SourceOption& source,
                          const std::vector<std::string>& sweep, bool json) {
  if (sweep.size() != 1) return InvalidInput(StrCat("--sweep: found ", sweep.size(), ", expected one beside --layout"));
  v1::CompareDispatchersRequest request;
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(options.model));
  request.set_gpus(options.gpus);
  request.set_global_batch(options.global_batch);
  request.set_sequence_length(options.sequence_length);
  ASSIGN_OR_RETURN(*request.mutable_layout(), ReadLayout(options.layout, "--layout"));
  request.set_axis(sweep[0]);
  RETURN_IF_ERROR(ReadDispatchers(options.dispatchers, request));
  const auto answer = planner::AnswerCompareDispatchers(
      request, model, [&](const ModelConfig& asked, int gpus) { return source.LoadProfileFor(asked, gpus); });
  if (!answer.ok()) return AsOption(answer.status());
  if (json) {
    PrintJson(answer->result());
  } else {
    PrintCrossover(answer->result());
  }
  return OkStatus();
}

}  // namespace moeplan::cli
