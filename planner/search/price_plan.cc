#include "planner/search/price_plan.h"

#include <optional>
#include <utility>

#include "models/links/link_model.h"
#include "models/measurement/cost_key.h"
#include "models/schedule/gradient_slices.h"

namespace moeplan {

void FillInFromLinks(const LinkModel& links, const Workload& resolved, Profile& profile, PriceNotes& notes) {
  for (const CollectiveKey& key : LayerCollectives(resolved, profile.cluster.gpus_per_node)) {
    if (Find(profile, key) != nullptr) continue;
    std::optional<LinkPrediction> prediction = links.Predict(key);
    if (!prediction) continue;
    notes.remarks.insert(Describe(*prediction));
    profile.collectives.push_back(std::move(prediction->model));
  }
}

StatusOr<Candidate> PricePlan(const Plan& plan, const Workload& resolved, const Profile& profile) {
  ASSIGN_OR_RETURN(TaskGraph whole, BuildPlan(plan, resolved, profile.cluster));
  TaskGraph graph = PartOf(std::move(whole), resolved.phase);
  GraphPrices prices = PriceGraph(graph, profile);
  if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, resolved.layout));
  return MakeCandidate(plan.knobs, std::move(graph), std::move(prices), /*memory_bytes=*/0);
}

StatusOr<Candidate> PricePlanWithLinks(const Plan& plan, const Workload& resolved, const Profile& profile) {
  StatusOr<Candidate> measured = PricePlan(plan, resolved, profile);
  if (measured.ok() || measured.status().code() != StatusCode::kNotFound) return measured;
  Profile filled = profile;
  PriceNotes of_the_layer;
  const LinkModel links(profile);
  FillInFromLinks(links, resolved, filled, of_the_layer);
  ASSIGN_OR_RETURN(Candidate foretold, PricePlan(plan, resolved, filled));
  for (const CostKey& key : foretold.prices.keys) {
    const auto* const collective = std::get_if<CollectiveKey>(&key);
    if (collective == nullptr || Find(profile, *collective) != nullptr) continue;
    if (const auto prediction = links.Predict(*collective)) foretold.prices.notes.remarks.insert(Describe(*prediction));
  }
  return foretold;
}

}  // namespace moeplan
