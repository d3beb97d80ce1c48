#include "planner/routing/plan_routed_layer.h"

#include <algorithm>
#include <functional>

#include "models/memory/graph_memory.h"
#include "models/routing/expert_load.h"
#include "models/text.h"
#include "planner/routing/place_experts.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

constexpr int kExtraExpertsPerRank = 1;

std::vector<double> InOrder(std::span<const double> values, std::span<const int> order) {
  std::vector<double> ordered;
  for (const int index : order) ordered.push_back(values[index]);
  return ordered;
}

Workload WithRouting(Workload workload, std::vector<double> tokens_per_expert) {
  workload.routing = ExpertRouting{.tokens_per_expert = std::move(tokens_per_expert), .skew = std::nullopt};
  return workload;
}

double RankRatio(const Workload& workload) {
  return BusiestRatio(RankLoads(FilledSlots(workload), workload.layout.expert_parallel));
}

void RaiseCapacity(const Workload& workload, Remedies& remedies) {
  remedies.capacity = workload;
  remedies.capacity.layer.capacity_factor = IsDropless(workload.layer)
                                                ? CapacityFactorOf(WithExpectedSlots(workload).layer, workload.layout)
                                                : FactorThatDropsNothing(workload);
  remedies.capacity.layer.receive_factor = 0;
  remedies.report.capacity = {.capacity_factor = remedies.capacity.layer.capacity_factor,
                              .slots = SizesOf(remedies.capacity.layer, workload.layout).slots,
                              .predicted_time_s = {}};
}

void MoveExperts(const Workload& workload, const StopSignals& stop, Remedies& remedies) {
  const int ranks = workload.layout.expert_parallel;
  const std::vector<double> filled = FilledSlots(workload);
  Placement placement = PlaceExperts(filled, ranks, kPlacementNodes, stop);
  remedies.placement = WithRouting(workload, InOrder(ExpertPairs(workload), placement.physical_to_logical));
  const double ratio = RankRatio(*remedies.placement);
  remedies.report.placement =
      PlacementBalancing{.physical_to_logical = std::move(placement.physical_to_logical),
                         .busiest_rank_ratio = ratio,
                         .busiest_rank_ratio_floor = ratio * (placement.busiest_load_floor / placement.busiest_load),
                         .predicted_time_s = {}};
}

// The share of the pairs that get no slot where experts have copies: a token goes to an expert once, whichever copy.
double DroppedShareOfCopies(const Workload& workload, const std::vector<int>& copies, const Workload& copied) {
  const std::vector<double> pairs = ExpertPairs(workload);
  const double tokens = SizesOf(copied.layer, copied.layout).tokens, slots = SlotsOfExpert(copied);
  double kept = 0;
  for (size_t expert = 0; expert < pairs.size(); ++expert) {
    kept += std::min({pairs[expert], tokens, copies[expert] * slots});
  }
  return std::max(0.0, 1 - kept / (workload.layer.top_k * tokens));
}

void CopyExperts(const Workload& workload, const StopSignals& stop, Remedies& remedies) {
  const int ranks = workload.layout.expert_parallel, extra = kExtraExpertsPerRank * ranks;
  const int experts = workload.layer.experts;
  const std::vector<double> pairs = ExpertPairs(workload);
  const std::vector<int> copies = CopiesOfExperts(pairs, extra, /*most=*/ranks);
  std::vector<int> logical;  // By copy.
  std::vector<double> copy_pairs;
  for (int expert = 0; expert < experts; ++expert) {
    logical.insert(logical.end(), copies[expert], expert);
    copy_pairs.insert(copy_pairs.end(), copies[expert], pairs[expert] / copies[expert]);
  }
  Workload copied = WithRouting(workload, copy_pairs);
  copied.layer.experts = experts + extra;
  copied.layer.capacity_factor *= static_cast<double>(copied.layer.experts) / experts;
  Placement placement = PlaceExperts(FilledSlots(copied), ranks, kPlacementNodes, stop);
  copied.routing->tokens_per_expert = InOrder(copy_pairs, placement.physical_to_logical);
  for (int& copy : placement.physical_to_logical) copy = logical[copy];
  remedies.report.replicas = ReplicaBalancing{.extra_experts_per_rank = kExtraExpertsPerRank,
                                              .copies = copies,
                                              .physical_to_logical = std::move(placement.physical_to_logical),
                                              .busiest_rank_ratio = RankRatio(copied),
                                              .dropped_share = DroppedShareOfCopies(workload, copies, copied),
                                              .extra_weight_bytes = ExpertWeightBytes(copied.layer, copied.layout) -
                                                                    ExpertWeightBytes(workload.layer, workload.layout),
                                              .predicted_time_s = {}};
  remedies.replicas = std::move(copied);
}

// Top-k cannot send an expert two pairs of a token.
void WarnOfTooLargeShares(const Workload& workload, std::vector<std::string>& warnings) {
  const std::vector<double> shares = ExpertShares(workload);
  const auto largest = std::ranges::max_element(shares);
  if (*largest * workload.layer.top_k <= 1 + 1e-9) return;
  warnings.push_back(StrCat("routing gives expert ", largest - shares.begin(), " a share of ", ThreeDigits(*largest),
                            " of the pairs, but with topK ", workload.layer.top_k, " none can have more than ",
                            ThreeDigits(1.0 / workload.layer.top_k),
                            ": what is beyond counts as dropped, whatever the capacity"));
}

}  // namespace

Remedies RemediedWorkloads(const Workload& workload, const StopSignals& stop) {
  const std::vector<double> pairs = ExpertPairs(workload);
  Remedies remedies;
  remedies.report.busiest_expert_ratio = BusiestRatio(pairs);
  remedies.report.busiest_rank_ratio = RankRatio(workload);
  remedies.report.dropped_share = DroppedShare(workload);
  RaiseCapacity(workload, remedies);
  if (const int ranks = workload.layout.expert_parallel; ranks > 1) {
    MoveExperts(workload, stop, remedies);
    if (workload.layer.experts <= kMaxRoutedExperts - kExtraExpertsPerRank * ranks) {
      CopyExperts(workload, stop, remedies);
    }
  }
  return remedies;
}

StatusOr<PlanAnswer> PlanRoutedLayer(const Workload& workload, const Profile& profile, const PlanOptions& options,
                                     const PlanBudget& budget) {
  ASSIGN_OR_RETURN(PlanAnswer answer, PlanLayer(workload, profile, options, budget));
  if (!answer.workload.routing) return answer;
  WarnOfTooLargeShares(answer.workload, answer.warnings);
  std::vector<std::string> warnings;
  PlanOptions again = options;
  again.top = 1;
  again.rules = false;
  const auto best_time_s = [&](const char* remedy, const Workload& remedied) -> std::optional<double> {
    const StatusOr<PlanAnswer> plan = PlanLayer(remedied, profile, again, budget);
    if (!plan.ok() || plan->candidates.empty()) return std::nullopt;
    const StopReason stop = plan->search.stop_reason;
    if (stop == StopReason::kCancelled || stop == StopReason::kOutOfTime) return std::nullopt;
    for (const std::string& warning : plan->warnings) {
      if (std::ranges::find(answer.warnings, warning) != answer.warnings.end()) continue;
      warnings.push_back(StrCat("routing.", remedy, ": ", warning));
    }
    return plan->candidates.front().predicted_time_s;
  };
  Remedies remedies = RemediedWorkloads(answer.workload, budget.stop);
  remedies.report.capacity.predicted_time_s = best_time_s("capacity", remedies.capacity);
  if (remedies.placement) remedies.report.placement->predicted_time_s = best_time_s("placement", *remedies.placement);
  if (remedies.replicas) remedies.report.replicas->predicted_time_s = best_time_s("replicas", *remedies.replicas);
  answer.warnings.insert(answer.warnings.end(), warnings.begin(), warnings.end());
  answer.routing = std::move(remedies.report);
  return answer;
}

}  // namespace moeplan::planner
