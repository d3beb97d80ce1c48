#include "models/timeline/price.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace moeplan {
namespace {

// Prices the tasks of one graph. The chunks of a schedule ask for the same cost over and over, so each is looked up
// once.
class GraphPricer {
 public:
  explicit GraphPricer(const Profile& profile) : pricer_(profile) {}

  TaskPrice Price(const Task& task, const TaskCost& cost, const ContentionSet& beside) {
    auto [known, fresh] = known_.try_emplace({cost.key, cost.size, beside.to_ulong()});
    if (fresh) known->second = LookUp(cost, beside);
    TaskPrice price = known->second;
    price.imposes = Imposed(task);
    return price;
  }

  const std::vector<CostKey>& keys() const { return keys_; }
  const Pricer& pricer() const { return pricer_; }

 private:
  TaskPrice LookUp(const TaskCost& cost, const ContentionSet& beside) {
    const PricedTime time = pricer_.Price(cost.key, cost.size);
    TaskPrice price = {.time_s = time.time_s, .low_s = time.low_s, .high_s = time.high_s, .key = IndexOf(cost.key)};
    for (int kind = 0; kind < kContentions; ++kind) {
      if (beside.test(kind)) {
        const auto [mid, low, high] = pricer_.Slowdown(cost.key, static_cast<Contention>(kind), cost.size);
        price.slowdown[kind] = mid;
        price.slowdown_low[kind] = low;
        price.slowdown_high[kind] = high;
      }
    }
    return price;
  }

  int IndexOf(const CostKey& key) {
    const CostKey essential = Essential(key);
    const auto found = std::find(keys_.begin(), keys_.end(), essential);
    const int index = static_cast<int>(found - keys_.begin());
    if (found == keys_.end()) keys_.push_back(essential);
    return index;
  }

  Pricer pricer_;
  std::vector<CostKey> keys_;
  std::map<std::tuple<CostKey, double, unsigned long>, TaskPrice> known_;
};

}  // namespace

GraphPrices PriceGraph(const TaskGraph& graph, const Profile& profile) {
  GraphPricer pricer(profile);
  const std::vector<ContentionSet> beside = PossibleContention(graph);
  GraphPrices prices;
  prices.tasks.reserve(graph.tasks.size());
  for (size_t i = 0; i < graph.tasks.size(); ++i) {
    const auto cost = CostOf(graph.tasks[i], graph);
    prices.tasks.push_back(cost ? pricer.Price(graph.tasks[i], *cost, beside[i]) : TaskPrice{});
  }
  prices.keys = pricer.keys();
  prices.missing = pricer.pricer().missing();
  prices.notes = pricer.pricer().notes();
  return prices;
}

double WorkInPiecesAtLeastS(const TaskGraph& graph, const Profile& profile, int pieces) {
  constexpr double kRounding = 1e-9;
  Pricer pricer(profile);
  std::array<double, kStreamKinds> work_s = {};
  for (const Task& task : graph.tasks) {
    const auto cost = CostOf(task, graph);
    if (!cost) continue;
    // Slots are dealt out rounded up, so that a piece is never smaller than its share.
    const double piece_s = pricer.LeastPriceS(cost->key, cost->size / pieces * (1 - kRounding), cost->size);
    work_s[static_cast<int>(task.stream)] += std::min(pricer.Price(cost->key, cost->size).time_s, pieces * piece_s);
  }
  return *std::ranges::max_element(work_s) * (1 - kRounding);
}

}  // namespace moeplan
