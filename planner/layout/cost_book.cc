#include "planner/layout/cost_book.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/cost/nearest_gemm.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"

namespace moeplan::planner {
namespace {

bool IsProduct(const KernelKey& key, int bytes_per_element) {
  return CountsFlops(key.kernel) && key.contention == Contention::kNone && BuiltInLike(key.kernel) == key.kernel &&
         key.bytes_per_element.value_or(bytes_per_element) == bytes_per_element;
}

}  // namespace

CostBook::CostBook(const Profile& profile, int model_dim, int bytes_per_element)
    : profile_(profile), bytes_per_element_(bytes_per_element) {
  const KernelKey any = {.kernel = Kernel::kExpertGemm, .bytes_per_element = bytes_per_element};
  KernelKey square = any;
  square.model_dim = square.hidden_dim = model_dim;
  product_.key = any;
  if (const KernelModel* nearest = NearestGemm(profile, square)) {
    product_.key = nearest->key;
    product_.model = nearest->model;
    if (nearest->key.model_dim || nearest->key.hidden_dim) {
      product_.stand_in = StrCat("products of dense layers: priced as ", Describe(CostKey(nearest->key)));
    }
  } else if (profile.cluster.peak_flops_per_s > 0) {
    product_.model = MakeCostModel(AlphaBeta{0, 1 / profile.cluster.peak_flops_per_s});
    product_.stand_in = "EXPERT_GEMM: not in the profile; products are priced at cluster.peakFlopsPerS";
  }
  if (product_.model) least_per_flop_s_ = LeastPerUnitS(product_.model->curve, /*bus_factor=*/1);
  for (const KernelModel& entry : profile.kernels) {
    if (IsProduct(entry.key, bytes_per_element))
      least_per_flop_s_ = std::min(least_per_flop_s_, LeastPerUnitS(entry.model.curve, /*bus_factor=*/1));
  }
}

const CostBook::Entry& CostBook::Find(const CollectiveKey& key) {
  const auto [place, fresh] = collectives_.try_emplace(key);
  Entry& entry = place->second;
  if (!fresh) return entry;
  entry.key = Essential(key);
  if (const CostModel* model = moeplan::Find(profile_, key)) {
    entry.model = *model;
    return entry;
  }
  if (!links_) links_.emplace(profile_);
  if (auto prediction = links_->Predict(key)) {
    entry.stand_in = moeplan::Describe(*prediction);
    entry.model = std::move(prediction->model.model);
  }
  return entry;
}

double CostBook::TimeOf(const Entry& entry, double size, double bus_factor) {
  if (!entry.model) {
    missing_.insert(entry.key);
    return 0;
  }
  asked_.insert(entry.key);
  if (!entry.stand_in.empty()) notes_.remarks.insert(entry.stand_in);
  const PricedTime price = Price(*entry.model, size, bus_factor);
  if (price.extrapolated) {
    PriceNotes one;
    one.extrapolated[entry.key] = {size, size, entry.model->size_low, entry.model->size_high};
    notes_.Merge(one);
  }
  if (!lean_ || lean_->key != entry.key) return price.time_s;
  return lean_->end == End::kLow ? price.low_s : price.high_s;
}

double CostBook::CollectiveS(Collective collective, const GroupShape& group, double bytes) {
  if (group.size == 1 || bytes <= 0) return 0;
  const Entry& entry = Find({.collective = collective, .group = group, .bytes_per_element = bytes_per_element_});
  extrapolated_ = extrapolated_ || !entry.stand_in.empty();
  return TimeOf(entry, bytes, BusFactor(collective, group.size));
}

double CostBook::ProductS(double flops) { return flops <= 0 ? 0 : TimeOf(product_, flops, /*bus_factor=*/1); }

Profile CostBook::ForLayer(const Layer& layer, const Layout& layout) {
  Profile profile = {.name = profile_.name, .version = profile_.version, .cluster = profile_.cluster};
  profile.kernels = profile_.kernels;
  StandInFor(KeyOf(Kernel::kExpertGemm, layer, layout), "products of experts", profile);
  if (layer.shared_hidden_dim > 0) {
    StandInFor(SharedExpertKey(Kernel::kExpertGemm, layer, layout), "products of shared experts", profile);
  }
  std::set<GroupShape> shapes;
  for (const Group group : kGroups) shapes.insert(ShapeOf(group, layout, profile_.cluster.gpus_per_node));
  for (const CollectiveModel& entry : profile_.collectives) {
    if (shapes.contains(entry.key.group)) profile.collectives.push_back(entry);
  }
  for (const CollectiveKey& key : LayerCollectives(layer, layout, profile_.cluster.gpus_per_node)) {
    if (moeplan::Find(profile, key) != nullptr) continue;
    const Entry& entry = Find(key);
    if (!entry.model) continue;
    profile.collectives.push_back({key, *entry.model});
    notes_.remarks.insert(entry.stand_in);
    extrapolated_ = true;
  }
  return profile;
}

void CostBook::StandInFor(const KernelKey& product, const char* what, Profile& profile) {
  if (moeplan::Find(profile_, product) != nullptr) return;
  if (const KernelModel* nearest = NearestGemm(profile_, product)) {
    profile.kernels.push_back({product, nearest->model});
    notes_.remarks.insert(StrCat(what, ": priced as ", Describe(CostKey(nearest->key))));
  } else if (product_.model) {
    profile.kernels.push_back({product, *product_.model});
    notes_.remarks.insert(product_.stand_in);
  }
}

void CostBook::Forget() {
  missing_.clear();
  extrapolated_ = false;
  notes_ = {};
  asked_.clear();
}

}  // namespace moeplan::planner
