#include "planner/layout/priced_layout.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "models/check.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/search/explain_plan.h"

namespace moeplan::planner {

double DeviceBytes(const Profile& profile) {
  const double bytes = profile.cluster.device_memory_bytes;
  return bytes > 0 ? bytes : std::numeric_limits<double>::infinity();
}

double PeakFlopsPerS(const Profile& profile, const CostBook& book) {
  const double told = profile.cluster.peak_flops_per_s;
  return told > 0 ? std::max(told, book.FastestFlopsPerS()) : 0;
}

void WarnOfPeak(const Profile& profile, const CostBook& book, std::set<std::string>& warnings) {
  const double told = profile.cluster.peak_flops_per_s, peak = PeakFlopsPerS(profile, book);
  if (told <= 0 || peak <= told) return;
  warnings.insert(StrCat("MFU is over ", BriefNumber(peak), " flop/s, which products reach: cluster.peakFlopsPerS is ",
                         BriefNumber(told), ", less than that; set it to the GPU's"));
}

PricedLayout WithoutExperts(const LayoutRequest& request, const LayoutPoint& point) {
  return {.point = point, .memory = RankMemoryOf(request, point, {})};
}

std::optional<PricedLayout> BestThatFits(const LayoutRequest& request, const LayoutPoint& point, const MoePlans& plans,
                                         double device_bytes, double& least_bytes) {
  for (const MoePlan& plan : plans.plans) {
    const RankMemory memory = RankMemoryOf(request, point, plan.memory);
    if (memory.total_bytes() <= device_bytes) return PricedLayout{.point = point, .memory = memory, .moe = plan};
    least_bytes = std::min(least_bytes, memory.total_bytes());
  }
  return std::nullopt;
}

RankedLayout Describe(const LayoutRequest& request, const Profile& profile, const PricedLayout& priced,
                      const MoePlans* plans, CostBook& book, std::set<std::string>& warnings) {
  RankedLayout layout = {.layout = priced.point.layout,
                         .micro_batch = priced.point.micro_batch,
                         .step_time_s = priced.time.step_s,
                         .memory = priced.memory,
                         .network_scale = priced.point.network_scale,
                         .horizontal_contexts = priced.point.horizontal_contexts,
                         .pipeline_bubble = priced.time.bubble,
                         .gradient_s = priced.time.gradient_s,
                         .moe_layer_s = priced.moe.time.forward_s + priced.moe.time.backward_s,
                         .moe = priced.moe.knobs,
                         .lancet = priced.lancet};
  layout.tokens_per_s = static_cast<double>(request.global_batch) * request.sequence_length / priced.time.step_s;
  layout.mfu = ModelFlopsUtilisation(request, priced.time.step_s, PeakFlopsPerS(profile, book));
  book.Forget();
  PriceStep(request, priced.point, priced.moe.time, book, priced.gains);
  layout.extrapolated = book.extrapolated();
  std::vector<KeyTime> times;
  if (plans != nullptr) {
    StatusOr<std::vector<KeyTime>> of_experts = TimesByKey(priced.moe.plan, plans->layer, plans->groups);
    MOEPLAN_CHECK(of_experts.ok());
    times = *std::move(of_experts);
  }
  for (const CostKey& key : book.sources()) times.push_back({.key = key});
  layout.priced_from = DearestEntries(times, profile);
  const std::vector<std::string> notes = book.notes().Warnings();
  warnings.insert(notes.begin(), notes.end());
  if (plans != nullptr) {
    layout.extrapolated = layout.extrapolated || plans->extrapolated;
    warnings.insert(plans->warnings.begin(), plans->warnings.end());
  }
  return layout;
}

}  // namespace moeplan::planner
