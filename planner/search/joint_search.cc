#include "planner/search/joint_search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <utility>

#include "models/measurement/candidates.h"
#include "models/measurement/cost_key.h"
#include "models/schedule/carry.h"
#include "models/schedule/schedules.h"
#include "planner/gradients/place_gradients.h"
#include "planner/search/graph_pricing.h"
#include "planner/search/launch_orders.h"
#include "planner/search/refusals.h"
#include "planner/search/stop_watch.h"
#include "planner/search/task_order.h"
#include "planner/search/tried.h"
#include "planner/search/unequal_candidates.h"
#include "planner/search/variants.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

// Groups of variants that differ in how their exchanges are carried alone, so that each group's graphs are one graph.
std::vector<std::vector<Tried*>> CarriedUnlike(const std::vector<Tried*>& variants) {
  std::vector<std::vector<Tried*>> groups;
  for (Tried* tried : variants) {
    const auto alike = std::ranges::find_if(
        groups, [&](const auto& group) { return DifferInCarriageAlone(group[0]->variant, tried->variant); });
    (alike == groups.end() ? groups.emplace_back() : *alike).push_back(tried);
  }
  return groups;
}

// The powers of two and the fastest; of the many variants with codecs, other all-to-alls or limited CTAs the fastest
// alone.
void List(Tried tried, std::vector<Candidate>& listed) {
  const auto fastest = std::ranges::min_element(tried.priced, {}, &Candidate::time_s);
  for (auto candidate = tried.priced.begin(); candidate != tried.priced.end(); ++candidate) {
    if (candidate != fastest && (tried.fastest_alone || !IsPowerOfTwo(PiecesOf(candidate->knobs)))) continue;
    listed.push_back(std::move(*candidate));
  }
  std::ranges::move(tried.unequal, std::back_inserter(listed));
}

// Every step adds to what was tried and lowers fastest_s_, which bounds compare with; that is all that steps share.
// Refusals, counts and the floor are for the answer.
class Search {
 public:
  Search(const Workload& workload, const Profile& profile, const PlanOptions& options, const PlanBudget& budget)
      : workload_(workload),
        profile_(profile),
        budget_(budget),
        baselines_only_(options.baselines_only),
        family_(options.family),
        for_rows_(options.for_rows),
        pieces_(options.pieces),
        index_(profile),
        pricing_(workload, index_),
        watch_(budget.stop) {}

  FoundCandidates Run() {
    const std::vector<Knobs> variants = VariantsWithoutCodecs();
    TryLossless(variants);
    TryCodecs(variants);
    for (const Tried& tried : tried_) refusals_.AddTooLarge(tried, profile_.cluster);
    for (const auto& [family, reason] : other_algorithms_) refusals_.Add({.family = family}, reason);
    if (!for_rows_) TryUnequal();
    SearchOrders();
    if (workload_.gradient_bytes > 0) AddGradients();
    FoundCandidates found;
    for (Tried& tried : tried_) List(std::move(tried), found.listed);
    found.skipped = std::move(refusals_).Take();
    found.outcome = Outcome();
    found.fastest_s = fastest_s_;
    found.least_unfit_bytes = pricing_.least_unfit_bytes();
    found.missing = {pricing_.missing().begin(), pricing_.missing().end()};
    found.ruled_out = ruled_out_;
    return found;
  }

 private:
  SearchOutcome Outcome() const {
    SearchOutcome outcome = {.stop_reason = watch_.reason(), .evaluated = priced_ + too_large_};
    if (outcome.stop_reason != StopReason::kNotSearched) return outcome;
    const double floor_s = std::min(time_floor_s_, fastest_s_);
    outcome.time_floor_s = std::isfinite(floor_s) ? floor_s : 0;
    const bool proved = floor_s >= fastest_s_ * (1 - kTie);
    outcome.stop_reason = proved ? StopReason::kProvedBest : StopReason::kOutOfBudget;
    return outcome;
  }

  // ---- Equal pieces.

  // Other all-to-all algorithms that the profile lacks are told once for all of them, behind what keeps a family from
  // being priced at all.
  std::vector<Knobs> VariantsWithoutCodecs() {
    std::vector<Knobs> variants;
    for (const Family family : Families()) {
      if (baselines_only_ && !IsBaseline(family)) continue;
      if (family_ && family != *family_) continue;
      if (const Status allowed = FamilyAllowed(family, workload_, profile_.cluster); !allowed.ok()) {
        refusals_.Add({.family = family}, allowed.message());
        continue;
      }
      const Variants::OfFamily found = variants_.Of(family);
      variants.insert(variants.end(), found.tried.begin(), found.tried.end());
      if (!found.not_measured.empty()) {
        other_algorithms_.emplace_back(family, MissingReason(found.not_measured, workload_.layout));
      }
    }
    return variants;
  }

  std::vector<int> CountsUpTo(int most) const {
    if (!for_rows_) return ChunkCounts(most);
    if (pieces_ == 0) return PowersOfTwo(most);
    return pieces_ <= most ? std::vector<int>{pieces_} : std::vector<int>{};
  }

  void TryLossless(const std::vector<Knobs>& variants) {
    std::vector<Tried*> lossless;
    for (const Knobs& variant : variants) lossless.push_back(&AddVariant(variant));
    for (const std::vector<Tried*>& alike : CarriedUnlike(lossless)) {
      const int most = alike.front()->most_pieces;
      for (const int pieces : CountsUpTo(most)) {
        for (Tried* tried : alike) TryPieces(*tried, pieces);
      }
    }
  }

  // Last, and few pieces first, so that there are fast ones for bounds to be compared with.
  void TryCodecs(const std::vector<Knobs>& variants) {
    std::vector<Tried*> coded;
    for (const Knobs& variant : variants) {
      for (const Knobs& knobs : variants_.Coded(variant)) coded.push_back(&AddVariant(knobs));
    }
    const std::vector<std::vector<Tried*>> groups = CarriedUnlike(coded);
    for (const int pieces : PowersOfTwo(kMostChunks)) {
      for (const std::vector<Tried*>& alike : groups) {
        for (Tried* tried : alike) {
          if (pieces <= tried->most_pieces && !RuledOut(*tried, pieces)) TryPieces(*tried, pieces);
        }
      }
    }
    for (const Tried* tried : coded) {
      if (!watch_.Stopped() && tried->priced.empty() && tried->too_large_bytes.empty() && !tried->given_up) {
        ++ruled_out_;
      }
    }
  }

  Tried& AddVariant(const Knobs& variant) {
    Tried& tried = tried_.emplace_back();
    tried.variant = variant;
    tried.most_pieces = MaxPieces(variant.family, workload_);
    tried.has_codec = HasCodec(variant);
    tried.fastest_alone =
        tried.has_codec || variant.all_to_all != AllToAllAlgorithm::kDirect || variant.communication_ctas != 0;
    return tried;
  }

  // A layer that ends later can leave gaps for more of the gradients.
  bool BoundsHold() const { return workload_.gradient_bytes == 0; }

  bool RuledOut(const Tried& tried, int pieces) {
    return BoundsHold() && tried.whole && WorkInPiecesAtLeastS(*tried.whole, index_, pieces) >= fastest_s_;
  }

  void TryPieces(Tried& tried, int pieces) {
    if (tried.given_up || watch_.Stopped()) return;
    const Knobs knobs = WithPieces(tried.variant, pieces);
    if (const Status status = TryChunks(knobs, tried); !status.ok()) {
      refusals_.Add(knobs, status.message());
      tried.given_up = true;
    }
  }

  Status TryChunks(const Knobs& knobs, Tried& tried) {
    ASSIGN_OR_RETURN(std::optional<PricedGraph> priced, pricing_.Price(knobs, tried));
    ++(priced ? priced_ : too_large_);
    if (!priced) return OkStatus();
    auto& [graph, prices, bytes] = *priced;
    // Where only a variant's fastest graph is listed, one that cannot be the fastest is not played. Codecs are tried
    // last and are the least simple, so their graphs must beat the fastest of all.
    const double to_beat_s = tried.has_codec ? fastest_s_ : tried.fastest_s;
    if (tried.has_codec && PiecesOf(knobs) == 1) tried.whole = StreamCosts(graph);
    if (BoundsHold() && tried.fastest_alone && TaskOrderFloorS(graph, prices.tasks) >= to_beat_s) return OkStatus();
    tried.priced.push_back(MakeCandidate(knobs, graph, std::move(prices), bytes));
    tried.fastest_s = std::min(tried.fastest_s, tried.priced.back().time_s());
    fastest_s_ = std::min(fastest_s_, tried.fastest_s);
    return OkStatus();
  }

  // ---- What the candidates become.

  void TryUnequal() {
    const UnequalCandidates found = TryUnequalChunks(tried_, workload_, index_, pricing_, watch_);
    priced_ += found.priced;
    too_large_ += found.too_large;
    fastest_s_ = found.fastest_s.value_or(fastest_s_);
  }

  void SearchOrders() {
    std::vector<Candidate*> candidates;
    for (Tried& tried : tried_) {
      for (Candidate& candidate : tried.priced) {
        if (PiecesOf(candidate.knobs) <= kMostOrderedPieces) candidates.push_back(&candidate);
      }
    }
    const LaunchOrders found = SearchLaunchOrders(candidates, fastest_s_, budget_.nodes, index_, watch_);
    fastest_s_ = found.fastest_s;
    time_floor_s_ = found.time_floor_s;
  }

  // From here on candidates end with theirs; what no layer ends before is a floor.
  void AddGradients() {
    time_floor_s_ = std::min(time_floor_s_, fastest_s_);
    fastest_s_ = kNever;
    for (Tried& tried : tried_) {
      for (Candidate& layer : std::exchange(tried.priced, {})) AddGradients(std::move(layer), tried.priced);
      for (Candidate& layer : std::exchange(tried.unequal, {})) AddGradients(std::move(layer), tried.unequal);
    }
    if (fastest_s_ == kNever) priced_ = 0;  // None has a price after all.
    // Its sizes were chosen for the layer alone.
    for (Tried& tried : tried_)
      std::erase_if(tried.unequal, [&](const auto& one) { return one.time_s() > fastest_s_; });
  }

  // Stopped, it has no price.
  void AddGradients(Candidate layer, std::vector<Candidate>& into) {
    if (watch_.Stopped()) return;
    StatusOr<PlacedGradients> placed =
        PlaceGradients(std::move(layer.graph), std::move(layer.prices), workload_, profile_, watch_.signals());
    if (placed.status().code() == StatusCode::kCancelled) return;
    if (!placed.ok()) return refusals_.Add(layer.knobs, placed.status().message());
    Candidate& candidate = into.emplace_back(
        MakeCandidate(layer.knobs, std::move(placed->graph), std::move(placed->prices), layer.memory_bytes));
    candidate.gradients = std::move(placed->exchange);
    fastest_s_ = std::min(fastest_s_, candidate.time_s());
  }

  const Workload& workload_;
  const Profile& profile_;
  const PlanBudget& budget_;
  const bool baselines_only_;
  const std::optional<Family> family_;
  const bool for_rows_;
  const int pieces_;
  const Variants variants_{workload_, profile_};
  CostIndex index_;
  GraphPricing pricing_;
  StopWatch watch_;

  std::deque<Tried> tried_;       // Candidates stay where they are.
  double fastest_s_ = kNever;     // Of the candidates by now.
  double time_floor_s_ = kNever;  // Under every launch order.

  Refusals refusals_;
  std::vector<std::pair<Family, std::string>> other_algorithms_;  // Why they were not tried.
  int priced_ = 0, too_large_ = 0;                                // Graphs.
  int ruled_out_ = 0;                                             // Variants with codecs.
};

}  // namespace

FoundCandidates SearchCandidates(const Workload& workload, const Profile& profile, const PlanOptions& options,
                                 const PlanBudget& budget) {
  return Search(workload, profile, options, budget).Run();
}

}  // namespace moeplan::planner
