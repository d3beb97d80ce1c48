#include "planner/layout/dispatch_cost.h"

#include <algorithm>
#include <cmath>

#include "models/timeline/pricer.h"

namespace moeplan::planner {

DispatchRate RateOf(const DispatchFigures& figures, Dispatcher dispatcher, Transport transport, bool across_nodes) {
  if (!SendsOnceToANode(dispatcher)) return {};
  const bool hybrid = dispatcher == Dispatcher::kHybridEp;
  if (!across_nodes) return hybrid ? figures.hybridep_inside : figures.deepep_inside;
  if (transport == Transport::kUccl) return figures.uccl_across;
  return hybrid ? figures.hybridep_across : figures.deepep_across;
}

double ProcessorsTaken(const DispatchFigures& figures, Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::kDeepEp: return figures.deepep_processors;
    case Dispatcher::kHybridEp: return figures.hybridep_processors;
    default: return figures.nccl_processors;
  }
}

double OnceANode(const EvenRouting& routing, const GroupShape& group) {
  const int nodes = group.size / group.ranks_per_node;
  return nodes == 1 ? OnceARank(routing, group) : ExpectedPlaces(routing, nodes) / routing.top_k;
}

double OnceARank(const EvenRouting& routing, const GroupShape& group) {
  return ExpectedPlaces(routing, group.size) / routing.top_k;
}

double Gathered(const Dispatching& dispatching, const GroupShape& group) {
  return group.size / (dispatching.routing.top_k * dispatching.pair_rows);
}

namespace {

constexpr double kLeastBytes = 1 << 10, kMostBytes = 1ULL << 38;

PricedTime At(const ScaledCurve& curve, double bytes) {
  return Price(*curve.model, bytes * curve.bytes_ratio, curve.bus_factor);
}

// How far a model's interval reaches at its widest.
struct Widest {
  double low = 1, high = 1;
  void Add(double time_s, double low_s, double high_s) {
    low = std::min(low, low_s / time_s), high = std::max(high, high_s / time_s);
  }
};

CostModel ModelOf(LogLog curve, const Widest& widest, double own_error_ratio) {
  const double own = std::log(own_error_ratio);
  CostModel model = MakeCostModel(std::move(curve));
  model.fit = FitQuality{.interval_low_ratio = std::exp(-std::hypot(own, std::log(widest.low))),
                         .interval_high_ratio = std::exp(std::hypot(own, std::log(widest.high)))};
  return model;
}

}  // namespace

std::optional<CostModel> JoinedModel(const ScaledCurve& one, const ScaledCurve& other, Joined joined,
                                     const DispatchRate& rate) {
  if (one.model == nullptr || other.model == nullptr) return std::nullopt;
  LogLog curve;
  Widest widest;
  for (double bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 2) {
    const PricedTime a = At(one, bytes), b = At(other, bytes);
    const PricedTime& longer = a.time_s >= b.time_s ? a : b;
    const bool mean = joined == Joined::kMean;
    const double time_s = mean ? (a.time_s + b.time_s) / 2 : longer.time_s;
    widest.Add(time_s, mean ? (a.low_s + b.low_s) / 2 : longer.low_s, mean ? (a.high_s + b.high_s) / 2 : longer.high_s);
    curve.points.push_back({bytes, time_s / rate.over_all_to_all});
  }
  CostModel model = ModelOf(std::move(curve), widest, rate.error_ratio);
  // Sizes beyond what either was measured at are called extrapolated.
  model.size_low = std::max(one.model->size_low / one.bytes_ratio, other.model->size_low / other.bytes_ratio);
  model.size_high = std::min(one.model->size_high / one.bytes_ratio, other.model->size_high / other.bytes_ratio);
  return model;
}

CostModel MeasuredModel(const ScaledCurve& measured, const std::optional<CostModel>& by_links,
                        const DispatchRate& rate) {
  // The sizes that the all-to-all in its place was measured at.
  const double least = measured.model->size_low / measured.bytes_ratio;
  const double most = measured.model->size_high / measured.bytes_ratio;
  LogLog curve;
  Widest widest;
  const auto add = [&](double bytes) {
    const double nearest = std::clamp(bytes, least, most);
    PricedTime time = At(measured, by_links ? nearest : bytes);
    double longer = 1;
    if (by_links && nearest != bytes) {
      longer = TimeS(by_links->curve, bytes, /*bus_factor=*/1) / TimeS(by_links->curve, nearest, /*bus_factor=*/1);
    }
    widest.Add(time.time_s, time.low_s, time.high_s);
    curve.points.push_back({bytes, longer * time.time_s});
  };
  for (double bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 2) {
    // Its ends are points, too.
    for (const double end : {least, most}) {
      if (bytes / 2 < end && end < bytes && end > kLeastBytes &&
          (curve.points.empty() || curve.points.back().size < end))
        add(end);
    }
    add(bytes);
  }
  // Sizes so near each other tell nothing of the curve's form.
  constexpr double kNear = 4;
  CostModel model = ModelOf(std::move(curve), widest, most < kNear * least ? rate.error_ratio : 1);
  // Sizes beyond these are called extrapolated.
  model.size_low = least, model.size_high = most;
  return model;
}

}  // namespace moeplan::planner
