#include "planner/search/price_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/cost/nearest_gemm.h"
#include "models/links/link_model.h"
#include "models/measurement/cost_key.h"
#include "models/plan/build_plan.h"
#include "models/text.h"
#include "models/timeline/cost_index.h"

namespace moeplan::planner {

namespace {

// What stands in for one cost, and what to say of it.
struct StandIn {
  CostKey key;  // That was asked for.
  std::vector<CollectiveModel> collectives;
  std::vector<KernelModel> kernels;
  std::string remark;
};

std::vector<CollectiveKey> LackingCollectives(const Workload& workload, const Profile& profile) {
  std::vector<CollectiveKey> keys = LayerCollectives(workload, profile.cluster.gpus_per_node);
  std::erase_if(keys, [&](const CollectiveKey& key) { return Find(profile, key) != nullptr; });
  return keys;
}

std::vector<KernelKey> LackingProducts(const Workload& workload, const Profile& profile) {
  std::vector<KernelKey> keys = {KeyOf(Kernel::kExpertGemm, workload.layer, workload.layout)};
  if (workload.layer.shared_hidden_dim > 0)
    keys.push_back(SharedExpertKey(Kernel::kExpertGemm, workload.layer, workload.layout));
  CostIndex index(profile);
  std::erase_if(keys, [&](const KernelKey& key) { return index.EntryOf(key).has_value(); });
  return keys;
}

// All that was measured of the nearest dimensions, beside other things and of gradients, too, as if of those asked for.
StandIn StandInFor(const KernelKey& product, const KernelKey& nearest, const Profile& profile) {
  StandIn found = {.key = product};
  for (const KernelModel& entry : profile.kernels) {
    if (!IsExpertProduct(entry.key.kernel) || WithDimensionsOf(entry.key, nearest) != entry.key) continue;
    const KernelKey key = WithDimensionsOf(entry.key, product);
    if (Find(profile, key) == nullptr) found.kernels.push_back({key, entry.model});
  }
  found.remark = StrCat(Describe(CostKey(product)), ": not measured; priced as ", Describe(CostKey(nearest)));
  return found;
}

std::vector<StandIn> StandInsFor(const LinkModel& links, const Workload& resolved, const Profile& profile) {
  std::vector<StandIn> found;
  for (const CollectiveKey& key : LackingCollectives(resolved, profile)) {
    std::optional<LinkPrediction> prediction = links.Predict(key);
    if (!prediction) continue;
    std::string remark = Describe(*prediction);
    found.push_back({.key = key, .collectives = {std::move(prediction->model)}, .remark = std::move(remark)});
  }
  for (const KernelKey& key : LackingProducts(resolved, profile)) {
    const KernelModel* nearest = NearestGemm(profile, key);
    if (nearest != nullptr) found.push_back(StandInFor(key, nearest->key, profile));
  }
  return found;
}

void Add(const StandIn& one, Profile& profile) {
  profile.collectives.insert(profile.collectives.end(), one.collectives.begin(), one.collectives.end());
  profile.kernels.insert(profile.kernels.end(), one.kernels.begin(), one.kernels.end());
}

bool Answers(const StandIn& one, const CostKey& entry) {
  const auto* collective = std::get_if<CollectiveKey>(&entry);
  if (collective != nullptr)
    return std::ranges::find(one.collectives, *collective, &CollectiveModel::key) != one.collectives.end();
  return std::ranges::find(one.kernels, std::get<KernelKey>(entry), &KernelModel::key) != one.kernels.end();
}

}  // namespace

bool NeedsStandIns(const LinkModel& links, const Workload& resolved, const Profile& profile) {
  const auto can_be_predicted = [&](const CollectiveKey& key) { return links.Predict(key).has_value(); };
  const auto has_nearest = [&](const KernelKey& key) { return NearestGemm(profile, key) != nullptr; };
  return std::ranges::any_of(LackingProducts(resolved, profile), has_nearest) ||
         std::ranges::any_of(LackingCollectives(resolved, profile), can_be_predicted);
}

void FillIn(const LinkModel& links, const Workload& resolved, Profile& profile, PriceNotes& notes) {
  for (const StandIn& one : StandInsFor(links, resolved, profile)) {
    Add(one, profile);
    notes.remarks.insert(one.remark);
  }
}

std::optional<CostKey> StandInOf(const CostKey& key, CostIndex& measured) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  if (kernel == nullptr || !IsExpertProduct(kernel->kernel)) return std::nullopt;
  const KernelModel* nearest = NearestGemm(measured.profile(), *kernel);
  return nearest == nullptr ? std::nullopt : measured.EntryOf(WithDimensionsOf(*kernel, nearest->key));
}

StatusOr<Candidate> PricePlan(const Plan& plan, const Workload& resolved, const Profile& profile) {
  ASSIGN_OR_RETURN(TaskGraph whole, BuildPlan(plan, resolved, profile.cluster));
  TaskGraph graph = PartOf(std::move(whole), resolved.phase);
  GraphPrices prices = PriceGraph(graph, profile);
  if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, resolved.layout));
  return MakeCandidate(plan.knobs, std::move(graph), std::move(prices), /*memory_bytes=*/0);
}

StatusOr<Candidate> PriceFilledIn(const Plan& plan, const Workload& resolved, const Profile& profile) {
  StatusOr<Candidate> measured = PricePlan(plan, resolved, profile);
  if (measured.ok() || measured.status().code() != StatusCode::kNotFound) return measured;
  const std::vector<StandIn> stand_ins = StandInsFor(LinkModel(profile), resolved, profile);
  Profile filled = profile;
  for (const StandIn& one : stand_ins) Add(one, filled);
  ASSIGN_OR_RETURN(Candidate priced, PricePlan(plan, resolved, filled));
  CostIndex index(filled);
  for (const CostKey& key : priced.prices.keys) {
    const std::optional<CostKey> entry = index.EntryOf(key);
    for (const StandIn& one : stand_ins) {
      if (entry && Answers(one, *entry)) priced.prices.notes.remarks.insert(one.remark);
    }
  }
  return priced;
}

}  // namespace moeplan::planner
