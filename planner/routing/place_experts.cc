#include "planner/routing/place_experts.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>

#include "models/check.h"

namespace moeplan::planner {
namespace {

// Sums in another order differ in the last bits.
constexpr double kSame = 1e-12;

class Placer {
 public:
  Placer(std::span<const double> loads, int ranks, const StopSignals& stop)
      : loads_(loads),
        ranks_(ranks),
        stop_(stop),
        room_(static_cast<int>(loads.size()) / ranks),
        busiest_first_(loads.size()) {
    std::iota(busiest_first_.begin(), busiest_first_.end(), 0);
    std::ranges::stable_sort(busiest_first_, std::greater(), [this](int expert) { return loads_[expert]; });
    floor_ = Floor();
  }

  Placement Place(int budget_nodes) {
    LongestFirst();
    Swap();
    if (Held given = InOrder(); BusiestLoad(given) <= BusiestLoad(held_) * (1 + kSame)) held_ = std::move(given);
    // Deep recursion is of no use: what is left of many small loads always fits.
    constexpr size_t kMostExperts = 64;
    if (!IsBest() && loads_.size() <= kMostExperts) BranchAndBound(budget_nodes);
    Placement placement = {.busiest_load = BusiestLoad(held_), .busiest_load_floor = floor_};
    if (IsBest()) placement.busiest_load_floor = placement.busiest_load;
    for (std::vector<int>& experts : held_) {
      std::ranges::sort(experts);
      placement.physical_to_logical.insert(placement.physical_to_logical.end(), experts.begin(), experts.end());
    }
    return placement;
  }

 private:
  using Held = std::vector<std::vector<int>>;  // By rank.

  double LoadOf(const std::vector<int>& experts) const {
    double load = 0;
    for (const int expert : experts) load += loads_[expert];
    return load;
  }
  double BusiestLoad(const Held& held) const {
    double busiest = 0;
    for (const std::vector<int>& experts : held) busiest = std::max(busiest, LoadOf(experts));
    return busiest;
  }
  bool IsBest() const { return BusiestLoad(held_) <= floor_ * (1 + kSame); }

  // The mean; the busiest expert, which has to share its rank with others, at least the idlest; and, as some rank holds
  // two of the first ranks + 1 unless each holds one expert, the two idlest of those.
  double Floor() const {
    const int experts = static_cast<int>(loads_.size());
    const auto idlest = [&](int from_end) { return loads_[busiest_first_[experts - 1 - from_end]]; };
    double floor = std::accumulate(loads_.begin(), loads_.end(), 0.0) / ranks_;
    double beside = 0;
    for (int i = 0; i < room_ - 1; ++i) beside += idlest(i);
    floor = std::max(floor, loads_[busiest_first_[0]] + beside);
    if (room_ > 1) floor = std::max(floor, loads_[busiest_first_[ranks_ - 1]] + loads_[busiest_first_[ranks_]]);
    return floor;
  }

  Held InOrder() const {
    Held held(ranks_, std::vector<int>(room_));
    for (int rank = 0; rank < ranks_; ++rank) std::iota(held[rank].begin(), held[rank].end(), rank * room_);
    return held;
  }

  // Each expert, busiest first, to the idlest rank with room.
  void LongestFirst() {
    held_.assign(ranks_, {});
    using Idle = std::pair<double, int>;
    std::priority_queue<Idle, std::vector<Idle>, std::greater<>> idlest;
    for (int rank = 0; rank < ranks_; ++rank) idlest.emplace(0, rank);
    for (const int expert : busiest_first_) {
      const auto [load, rank] = idlest.top();
      idlest.pop();
      held_[rank].push_back(expert);
      if (static_cast<int>(held_[rank].size()) < room_) idlest.emplace(load + loads_[expert], rank);
    }
  }

  // An expert of the busiest rank for one of another, as long as that helps. Each rank's experts stay busiest first.
  void Swap() {
    constexpr int64_t kMostSteps = 20'000'000;
    int64_t steps = 0;
    std::vector<double> rank_loads;
    for (const std::vector<int>& experts : held_) rank_loads.push_back(LoadOf(experts));
    while (steps < kMostSteps && !stop_.Requested()) {
      const int busiest = static_cast<int>(std::ranges::max_element(rank_loads) - rank_loads.begin());
      struct {
        double busier_load;
        int rank = -1, at = 0, other_at = 0;
      } best{rank_loads[busiest] * (1 - kSame)};
      for (int rank = 0; rank < ranks_; ++rank) {
        const double gap = rank_loads[busiest] - rank_loads[rank];
        if (rank == busiest || gap <= 0) continue;
        for (int at = 0; at < room_; ++at) {
          // The best partner is half the gap less busy, or next to it.
          const double load = loads_[held_[busiest][at]];
          const auto partner = std::ranges::lower_bound(held_[rank], load - gap / 2, std::greater(),
                                                        [this](int e) { return loads_[e]; });
          const int near = static_cast<int>(partner - held_[rank].begin());
          for (int other_at = std::max(0, near - 1); other_at <= std::min(near, room_ - 1); ++other_at) {
            const double moved = load - loads_[held_[rank][other_at]];
            const double busier = std::max(rank_loads[busiest] - moved, rank_loads[rank] + moved);
            if (busier < best.busier_load) best = {busier, rank, at, other_at};
          }
          steps += 8;
        }
      }
      if (best.rank < 0) return;
      std::swap(held_[busiest][best.at], held_[best.rank][best.other_at]);
      for (const int rank : {busiest, best.rank}) {
        std::ranges::stable_sort(held_[rank], std::greater(), [this](int expert) { return loads_[expert]; });
        rank_loads[rank] = LoadOf(held_[rank]);
      }
      steps += room_ + ranks_;
    }
  }

  // Experts busiest first, each to every rank with room that differs from those tried.
  void BranchAndBound(int budget_nodes) {
    best_load_ = BusiestLoad(held_);
    nodes_left_ = budget_nodes;
    partial_.assign(ranks_, {});
    partial_loads_.assign(ranks_, 0);
    Branch(0, /*busiest=*/0);
    if (nodes_left_ > 0) floor_ = best_load_;
  }

  void Branch(size_t next, double busiest) {
    if (stop_.Requested()) nodes_left_ = 0;
    if (nodes_left_ <= 0 || --nodes_left_ <= 0) return;
    if (next == busiest_first_.size()) {
      best_load_ = busiest;
      held_ = partial_;
      return;
    }
    const int expert = busiest_first_[next];
    for (int rank = 0; rank < ranks_; ++rank) {
      if (static_cast<int>(partial_[rank].size()) == room_ || TriedAlike(rank)) continue;
      const double before = partial_loads_[rank];
      const double load = before + loads_[expert];
      if (load >= best_load_ * (1 - kSame)) continue;
      partial_[rank].push_back(expert);
      partial_loads_[rank] = load;
      Branch(next + 1, std::max(busiest, load));
      partial_[rank].pop_back();
      partial_loads_[rank] = before;
      if (best_load_ <= floor_ * (1 + kSame)) return;
    }
  }

  // Whether an earlier rank has as much load and room: the same again.
  bool TriedAlike(int rank) const {
    for (int earlier = 0; earlier < rank; ++earlier) {
      if (partial_loads_[earlier] == partial_loads_[rank] && partial_[earlier].size() == partial_[rank].size())
        return true;
    }
    return false;
  }

  const std::span<const double> loads_;
  const int ranks_;
  const StopSignals& stop_;
  const int room_;
  std::vector<int> busiest_first_;
  double floor_ = 0;
  Held held_, partial_;
  std::vector<double> partial_loads_;
  double best_load_ = 0;
  int nodes_left_ = 0;
};

}  // namespace

Placement PlaceExperts(std::span<const double> loads, int ranks, int budget_nodes, const StopSignals& stop) {
  MOEPLAN_CHECK(ranks >= 1 && !loads.empty() && loads.size() % ranks == 0);
  return Placer(loads, ranks, stop).Place(budget_nodes);
}

std::vector<int> CopiesOfExperts(std::span<const double> loads, int extra, int most) {
  MOEPLAN_CHECK(extra <= static_cast<int64_t>(most - 1) * static_cast<int64_t>(loads.size()));
  std::vector<int> copies(loads.size(), 1);
  const auto busier = [&](int a, int b) {  // Whether b's copies come before a's.
    const double load_a = loads[a] / copies[a], load_b = loads[b] / copies[b];
    return load_a != load_b ? load_a < load_b : a > b;
  };
  std::priority_queue<int, std::vector<int>, decltype(busier)> busiest(busier);
  for (int expert = 0; most > 1 && expert < static_cast<int>(loads.size()); ++expert) busiest.push(expert);
  for (; extra > 0; --extra) {
    const int expert = busiest.top();
    busiest.pop();
    if (++copies[expert] < most) busiest.push(expert);
  }
  return copies;
}

}  // namespace moeplan::planner
