#include "planner/search/unequal_candidates.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/measurement/candidates.h"
#include "models/schedule/schedules.h"
#include "planner/search/unequal_chunks.h"

namespace moeplan::planner {
namespace {

Candidate* FastestOf(Tried& tried) {
  const auto fastest = std::ranges::min_element(tried.priced, {}, &Candidate::time_s);
  return fastest == tried.priced.end() ? nullptr : &*fastest;
}

class UnequalSearch {
 public:
  UnequalSearch(const Workload& workload, CostIndex& index, GraphPricing& pricing, StopWatch& watch)
      : workload_(workload), index_(index), pricing_(pricing), watch_(watch) {}

  UnequalCandidates Run(std::deque<Tried>& tried) {
    std::map<Family, Tried*> by_family;
    Candidate* fastest = nullptr;
    for (Tried& one : tried) {
      Candidate* own = FastestOf(one);
      if (own == nullptr) continue;
      if (fastest == nullptr || own->time_s() < fastest->time_s()) fastest = own;
      Tried*& of_family = by_family[one.variant.family];
      if (of_family == nullptr || own->time_s() < FastestOf(*of_family)->time_s()) of_family = &one;
    }
    if (fastest == nullptr) return outcome_;
    AddInterval(*fastest, watch_.signals());
    to_beat_s_ = fastest->time_s() - IndistinctGainS(*fastest);
    for (const auto& [family, one] : by_family) Try(*one);
    if (!best_) return outcome_;
    outcome_.fastest_s = best_->time_s();
    of_best_->unequal.push_back(*std::move(best_));
    return outcome_;
  }

 private:
  void Try(Tried& tried) {
    for (int pieces = 2; pieces <= std::min(tried.most_pieces, kMostUnequalPieces); ++pieces) {
      if (watch_.Stopped() || !CanBeat(pieces, tried)) continue;
      outcome_.priced += WeighUnequalChunks(WithPieces(tried.variant, pieces), workload_, index_, to_beat_s_,
                                            [&](const Knobs& knobs) { return TimeToBeatS(knobs, tried); });
    }
  }

  // After the knobs were tried, which are faster than all before.
  double TimeToBeatS(const Knobs& knobs, Tried& tried) {
    StatusOr<std::optional<PricedGraph>> priced = pricing_.Price(knobs, tried);
    if (!priced.ok()) return to_beat_s_;
    if (!*priced) {
      ++outcome_.too_large;
      return to_beat_s_;
    }
    auto& [graph, prices, bytes] = **priced;
    Candidate candidate = MakeCandidate(knobs, graph, std::move(prices), bytes);
    if (candidate.time_s() < to_beat_s_) {
      to_beat_s_ = candidate.time_s();
      best_ = std::move(candidate);
      of_best_ = &tried;
    }
    return to_beat_s_;
  }

  bool CanBeat(int pieces, Tried& tried) {
    if (!tried.whole) {
      StatusOr<TaskGraph> whole = BuildSchedule(WithPieces(tried.variant, 1), workload_, index_.profile().cluster);
      if (!whole.ok()) return false;
      tried.whole = StreamCosts(PartOf(*std::move(whole), workload_.phase));
    }
    return WorkInUnequalPiecesAtLeastS(*tried.whole, index_, pieces, kShareUnits) < to_beat_s_;
  }

  const Workload& workload_;
  CostIndex& index_;
  GraphPricing& pricing_;
  StopWatch& watch_;
  UnequalCandidates outcome_;
  double to_beat_s_ = kNever;
  std::optional<Candidate> best_;
  Tried* of_best_ = nullptr;
};

}  // namespace

UnequalCandidates TryUnequalChunks(std::deque<Tried>& tried, const Workload& workload, CostIndex& index,
                                   GraphPricing& pricing, StopWatch& watch) {
  return UnequalSearch(workload, index, pricing, watch).Run(tried);
}

}  // namespace moeplan::planner
