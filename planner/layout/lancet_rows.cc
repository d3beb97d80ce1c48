#include "planner/layout/lancet_rows.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/layout/step_answer.h"
#include "models/text.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/price_layout.h"

namespace moeplan::planner {
namespace {

StepQuestion UnderLancet(const LayoutRequest& request, const RankedLayout& row) {
  StepQuestion question;
  question.request = request;
  question.layout = row.layout;
  question.micro_batch = row.micro_batch;
  question.horizontal_contexts = row.horizontal_contexts;
  question.lancet = true;
  return question;
}

std::vector<StatusOr<StepAnswer>> PriceAll(const LayoutRequest& request, const Profile& profile, int threads,
                                           const std::vector<RankedLayout>& rows, const StopSignals& stop) {
  std::vector<StatusOr<StepAnswer>> answers(rows.size(), Cancelled("ranking layouts was cancelled"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < rows.size() && !stop.Requested(); i = next++) {
      answers[i] = PriceLayout(UnderLancet(request, rows[i]), profile, stop);
    }
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min<size_t>(threads, rows.size()); ++i) others.emplace_back(work);
  work();
  others.clear();
  return answers;
}

}  // namespace

Status TryLancet(const LayoutRequest& request, const Profile& profile, int threads, LayoutAnswer& answer,
                 std::stop_token cancelled) {
  const StopSignals stop = {.cancelled = std::move(cancelled), .out_of_time = {}};
  std::vector<RankedLayout>& rows = answer.layouts;
  if (rows.empty()) return OkStatus();
  std::set<std::string> warnings(answer.warnings.begin(), answer.warnings.end());
  if (const Status has = CheckLancet(UnderLancet(request, rows.front())); !has.ok()) {
    warnings.insert(StrCat("Lancet's passes were not tried: ", has.message()));
    answer.warnings.assign(warnings.begin(), warnings.end());
    return OkStatus();
  }
  const std::vector<StatusOr<StepAnswer>> steps = PriceAll(request, profile, threads, rows, stop);
  if (stop.Requested()) return Cancelled("ranking layouts was cancelled");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!steps[i].ok()) {
      warnings.insert(StrCat("Lancet's passes could not be tried for a layout: ", steps[i].status().message()));
      continue;
    }
    if (steps[i]->missing_bytes > 0 || steps[i]->layout.step_time_s >= rows[i].step_time_s) continue;
    rows[i] = steps[i]->layout;
    warnings.insert(steps[i]->warnings.begin(), steps[i]->warnings.end());
  }
  std::ranges::stable_sort(rows, {}, &RankedLayout::step_time_s);
  warnings.insert(StrCat("Lancet's passes were tried for the ", rows.size(), rows.size() == 1 ? " layout" : " layouts",
                         " listed here alone; --top lists more"));
  answer.warnings.assign(warnings.begin(), warnings.end());
  return OkStatus();
}

}  // namespace moeplan::planner
