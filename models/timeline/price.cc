#include "models/timeline/price.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace moeplan {
namespace {

std::vector<std::optional<TaskCost>> CostsOf(const TaskGraph& graph) {
  std::vector<std::optional<TaskCost>> costs;
  costs.reserve(graph.tasks.size());
  for (const Task& task : graph.tasks) costs.push_back(CostOf(task, graph));
  return costs;
}

}  // namespace

std::vector<ContentionSet> MeasuredContention(const TaskGraph& graph, CostIndex& index) {
  if (!index.has_contention()) return std::vector<ContentionSet>(graph.tasks.size());
  std::vector<bool> cost_something;
  cost_something.reserve(graph.tasks.size());
  for (const Task& task : graph.tasks) cost_something.push_back(CostOf(task, graph).has_value());
  return PossibleContention(graph, cost_something);
}

GraphPricer::GraphPricer(const TaskGraph& graph, CostIndex& index, std::vector<ContentionSet> beside)
    : graph_(graph), costs_(CostsOf(graph)), beside_(std::move(beside)), pricer_(index) {}

TaskPrice GraphPricer::Price(TaskId task, double size) {
  const Task& of = graph_.tasks[task];
  const auto cost = size == of.size ? costs_[task] : CostOf(of, size, graph_);
  if (!cost) return {};
  TaskPrice price = PriceOf(*cost, beside_[task]);
  price.imposes = Imposed(of);
  return price;
}

double GraphPricer::TimeAloneS(TaskId task, double size) {
  const auto cost = CostOf(graph_.tasks[task], size, graph_);
  return cost ? pricer_.Price(cost->key, cost->size).time_s : 0;
}

TaskPrice GraphPricer::PriceOf(const TaskCost& cost, const ContentionSet& beside) {
  for (const KnownPrice& known : known_) {
    if (known.cost.size == cost.size && known.beside == beside && known.cost.key == cost.key) return known.price;
  }
  return known_.emplace_back(KnownPrice{cost, beside, LookUp(cost, beside)}).price;
}

TaskPrice GraphPricer::LookUp(const TaskCost& cost, const ContentionSet& beside) {
  const PricedTime time = pricer_.Price(cost.key, cost.size);
  TaskPrice price = {.time_s = time.time_s, .low_s = time.low_s, .high_s = time.high_s, .key = IndexOf(cost.key)};
  for (int kind = 0; kind < kContentions; ++kind) {
    if (beside.test(kind)) {
      const auto [mid, low, high] =
          pricer_.Slowdown(cost.key, static_cast<Contention>(kind), cost.size, graph_.communication_ctas);
      price.slowdown[kind] = mid;
      price.slowdown_low[kind] = low;
      price.slowdown_high[kind] = high;
    }
  }
  return price;
}

int GraphPricer::IndexOf(const CostKey& key) {
  const CostKey essential = Essential(key);
  const auto found = std::find(keys_.begin(), keys_.end(), essential);
  const int index = static_cast<int>(found - keys_.begin());
  if (found == keys_.end()) keys_.push_back(essential);
  return index;
}

GraphPrices PriceGraph(const TaskGraph& graph, const Profile& profile) {
  CostIndex index(profile);
  return PriceGraph(graph, index);
}

GraphPrices PriceGraph(const TaskGraph& graph, CostIndex& index) {
  return PriceGraph(graph, index, MeasuredContention(graph, index));
}

GraphPrices PriceGraph(const TaskGraph& graph, CostIndex& index, std::vector<ContentionSet> beside) {
  GraphPricer pricer(graph, index, std::move(beside));
  GraphPrices prices;
  prices.tasks.reserve(graph.tasks.size());
  for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
    prices.tasks.push_back(pricer.Price(task, graph.tasks[task].size));
  }
  prices.keys = pricer.keys();
  prices.missing = pricer.pricer().missing();
  prices.notes = pricer.pricer().notes();
  return prices;
}

namespace {

constexpr double kRounding = 1e-9;

// `least_cut_s`: of a cost that is cut in pieces, the least that all of them take.
template <typename LeastCut>
double WorkAtLeastS(const std::vector<StreamCost>& whole, CostIndex& index, LeastCut least_cut_s) {
  Pricer pricer(index);
  std::array<double, kStreamKinds> work_s = {};
  for (const auto& [cost, stream] : whole) {
    const double whole_s = pricer.Price(cost.key, cost.size).time_s;
    work_s[static_cast<int>(stream)] += std::min(whole_s, least_cut_s(cost, pricer));
  }
  return *std::ranges::max_element(work_s) * (1 - kRounding);
}

}  // namespace

std::vector<StreamCost> StreamCosts(const TaskGraph& graph) {
  std::vector<StreamCost> costs;
  costs.reserve(graph.tasks.size());
  for (const Task& task : graph.tasks) {
    if (const auto cost = CostOf(task, graph)) costs.push_back({*cost, task.stream});
  }
  return costs;
}

double WorkInPiecesAtLeastS(const std::vector<StreamCost>& whole, CostIndex& index, int pieces) {
  return WorkAtLeastS(whole, index, [&](const TaskCost& cost, Pricer& pricer) {
    // Slots are dealt out rounded up, so that a piece is never smaller than its share.
    return pieces * pricer.LeastPriceS(cost.key, cost.size / pieces * (1 - kRounding), cost.size);
  });
}

double WorkInUnequalPiecesAtLeastS(const std::vector<StreamCost>& whole, CostIndex& index, int pieces, int units) {
  return WorkAtLeastS(whole, index, [&](const TaskCost& cost, Pricer& pricer) {
    std::vector<double> one_s(units + 1), all_s(units + 1, std::numeric_limits<double>::infinity());
    for (int taken = 1; taken <= units; ++taken) {
      // Rounded up, several units can be more than their share, though less than twice as much.
      one_s[taken] = pricer.LeastPriceS(cost.key, cost.size * taken / units * (1 - kRounding), 2 * cost.size);
    }
    // all_s[n]: of the pieces so far, which take n units together.
    all_s[0] = 0;
    for (int piece = 0; piece < pieces; ++piece) {
      for (int together = units; together >= 0; --together) {
        double least_s = std::numeric_limits<double>::infinity();
        for (int taken = 1; taken <= together; ++taken) {
          least_s = std::min(least_s, all_s[together - taken] + one_s[taken]);
        }
        all_s[together] = least_s;
      }
    }
    return all_s[units];
  });
}

}  // namespace moeplan
