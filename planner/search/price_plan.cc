#include "planner/search/price_plan.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/cost/nearest_gemm.h"
#include "models/links/link_model.h"
#include "models/measurement/cost_key.h"
#include "models/schedule/gradient_slices.h"
#include "models/text.h"
#include "models/timeline/cost_index.h"

namespace moeplan {

namespace {

// What stands in for one cost, and what to say of it.
struct StandIn {
  CostKey key;
  CostModel model;
  std::string remark;
};

// How what is said of a stand-in begins.
std::string RemarkOf(const CostKey& key) { return StrCat(Describe(Essential(key)), ": not measured; "); }

std::optional<StandIn> StandInFor(const CollectiveKey& key, const LinkModel& links) {
  std::optional<LinkPrediction> prediction = links.Predict(key);
  if (!prediction) return std::nullopt;
  return StandIn{prediction->model.key, std::move(prediction->model.model), Describe(*prediction)};
}

std::optional<StandIn> StandInFor(KernelKey product, const Profile& profile) {
  const KernelModel* nearest = NearestGemm(profile, product);
  if (nearest == nullptr) return std::nullopt;
  product.kernel = nearest->key.kernel;
  return StandIn{product, nearest->model, StrCat(RemarkOf(product), "priced as ", Describe(CostKey(nearest->key)))};
}

std::vector<KernelKey> ProductsOf(const Workload& workload) {
  std::vector<KernelKey> products = {KeyOf(Kernel::kExpertGemm, workload.layer, workload.layout)};
  if (workload.layer.shared_hidden_dim > 0)
    products.push_back(SharedExpertKey(Kernel::kExpertGemm, workload.layer, workload.layout));
  return products;
}

std::vector<StandIn> StandInsFor(const LinkModel& links, const Workload& resolved, const Profile& profile) {
  std::vector<StandIn> found;
  const auto take = [&found](std::optional<StandIn> one) {
    if (one) found.push_back(*std::move(one));
  };
  for (const CollectiveKey& key : LayerCollectives(resolved, profile.cluster.gpus_per_node)) {
    if (Find(profile, key) == nullptr) take(StandInFor(key, links));
  }
  CostIndex index(profile);
  for (const KernelKey& key : ProductsOf(resolved)) {
    if (!index.EntryOf(key)) take(StandInFor(key, profile));
  }
  return found;
}

}  // namespace

bool LacksWhatOthersTell(const LinkModel& links, const Workload& resolved, const Profile& profile) {
  return !StandInsFor(links, resolved, profile).empty();
}

void FillIn(const LinkModel& links, const Workload& resolved, Profile& profile, PriceNotes& notes) {
  for (StandIn& one : StandInsFor(links, resolved, profile)) {
    notes.remarks.insert(std::move(one.remark));
    if (const auto* collective = std::get_if<CollectiveKey>(&one.key)) {
      profile.collectives.push_back({*collective, std::move(one.model)});
    } else {
      profile.kernels.push_back({std::get<KernelKey>(one.key), std::move(one.model)});
    }
  }
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
  Profile filled = profile;
  PriceNotes of_the_layer;
  FillIn(LinkModel(profile), resolved, filled, of_the_layer);
  ASSIGN_OR_RETURN(Candidate priced, PricePlan(plan, resolved, filled));
  // Of what stands in, what this plan asks for.
  CostIndex index(filled);
  for (const CostKey& key : priced.prices.keys) {
    const std::optional<CostKey> entry = index.EntryOf(key);
    if (!entry) continue;
    for (const std::string& remark : of_the_layer.remarks) {
      if (remark.starts_with(RemarkOf(*entry))) priced.prices.notes.remarks.insert(remark);
    }
  }
  return priced;
}

}  // namespace moeplan
