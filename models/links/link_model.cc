#include "models/links/link_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>

#include "models/fit/statistics.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "models/thinned.h"

namespace moeplan {
namespace {

// ---- How near two keys are, in doublings.

double Doublings(int a, int b) { return std::abs(std::log2(static_cast<double>(a) / b)); }

double Between(const GroupShape& a, const GroupShape& b) {
  return Doublings(a.size, b.size) + Doublings(a.ranks_per_node, b.ranks_per_node);
}

// Collective and algorithm.
std::pair<int, int> OperationOf(const CollectiveKey& key) {
  return {static_cast<int>(key.collective), static_cast<int>(key.algorithm)};
}

bool SameOperation(const CollectiveKey& a, const CollectiveKey& b) { return OperationOf(a) == OperationOf(b); }

double BetweenOperations(const CollectiveKey& a, const CollectiveKey& b) {
  if (SameOperation(a, b)) return 0;
  if (a.collective == Collective::kAllToAll || b.collective == Collective::kAllToAll) return 4;
  return a.collective == Collective::kAllReduce || b.collective == Collective::kAllReduce ? 2 : 0.5;
}

double Between(const CollectiveKey& a, const CollectiveKey& b) {
  const bool other_elements =
      a.bytes_per_element && b.bytes_per_element && *a.bytes_per_element != *b.bytes_per_element;
  return Between(a.group, b.group) + BetweenOperations(a, b) + (other_elements ? 1 : 0);
}

double Weight(double doublings) { return 1 / (doublings * doublings + 0.05); }

// ---- Curves.

// What a bare line is read at.
std::vector<double> UsualSizes() {
  std::vector<double> sizes;
  for (double bytes = 1024; bytes <= 67108864; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

std::vector<double> SizesOf(const Curve& curve) {
  std::vector<double> sizes;
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          for (const auto& point : form.points) sizes.push_back(point.size);
        }
      },
      curve);
  return sizes.empty() ? UsualSizes() : sizes;
}

// Times that never fall, of least squared change of their logarithms: neighbours that fall are pooled.
void MakeRising(std::vector<TimePoint>& points) {
  struct Pool {
    double log_time = 0;
    size_t count = 0;
  };
  std::vector<Pool> pools;
  for (const TimePoint& point : points) {
    Pool pool = {std::log(point.time_s), 1};
    while (!pools.empty() && pools.back().log_time > pool.log_time) {
      const Pool before = pools.back();
      pools.pop_back();
      const auto a = static_cast<double>(before.count), b = static_cast<double>(pool.count);
      pool = {(a * before.log_time + b * pool.log_time) / (a + b), before.count + pool.count};
    }
    pools.push_back(pool);
  }
  auto point = points.begin();
  for (const Pool& pool : pools) {
    for (size_t i = 0; i < pool.count; ++i) (point++)->time_s = std::exp(pool.log_time);
  }
}

// ---- Predictions.

using Basis = std::vector<const MeasuredCollective*>;

bool Teaches(const CollectiveKey& key) {
  return key.contention == Contention::kNone && key.ctas == 0 && key.group.size > 1 &&
         key.dispatcher == Dispatcher::kAllToAll;
}

std::optional<MeasuredCollective> Read(const CollectiveModel& entry) {
  MeasuredCollective measured = {.key = entry.key};
  for (const GatherRoute route : kGatherRoutes) {
    const std::optional<LinkLoad> load = LoadOf(entry.key, route);
    if (!load) return std::nullopt;
    measured.loaded.loads[static_cast<size_t>(route)] = *load;
  }
  const double bus_factor = BusFactor(entry.key.collective, entry.key.group.size);
  for (const double size : Thinned(SizesOf(entry.model.curve), LinkModel::kMostPoints)) {
    const double time_s = TimeS(entry.model.curve, size, bus_factor);
    if (time_s > 0) measured.loaded.points.push_back({size, time_s});
  }
  if (measured.loaded.points.empty()) return std::nullopt;
  measured.curve = LogLog{measured.loaded.points};
  if (entry.model.fit) measured.interval_log = std::max(0.0, std::log(entry.model.fit->interval_high_ratio));
  return measured;
}

template <typename Keeps>
Basis Those(const Basis& basis, Keeps keeps) {
  Basis kept;
  std::ranges::copy_if(basis, std::back_inserter(kept), [&](const auto* one) { return keeps(one->key); });
  return kept;
}

Basis AsFar(const Basis& basis, const CollectiveKey& key) {
  return Those(basis, [&](const CollectiveKey& one) { return Spans(one.group) == Spans(key.group); });
}

// Whether a basis that reaches as far can say anything of the key.
bool Serves(const Basis& as_far, const CollectiveKey& key) {
  return std::ranges::any_of(as_far, [&](const MeasuredCollective* one) {
    return key.algorithm == AllToAllAlgorithm::kDirect || SameOperation(one->key, key);
  });
}

LinkLine LineThrough(const Basis& basis, const LinkUse* use, const Wires& wires) {
  std::vector<const LoadedCurve*> curves;
  for (const MeasuredCollective* one : basis) curves.push_back(&one->loaded);
  return use == nullptr ? FitLinkLine(curves, wires) : FitLinkLine(curves, *use, wires);
}

// log(measured / line) of one curve at a size.
double BeyondLine(const MeasuredCollective& one, const LinkLine& line, double size) {
  const double at = std::clamp(size, one.loaded.points.front().size, one.loaded.points.back().size);
  return std::log(TimeS(one.curve, at, /*bus_factor=*/1) / TimeS(line, one.loaded.load(line.use), at));
}

// Requires a basis that reaches as far as the key, and a load.
std::vector<TimePoint> PredictedPoints(const CollectiveKey& key, const LinkLoad& load, const LinkLine& line,
                                       const Basis& as_far, const std::vector<double>& sizes) {
  std::vector<TimePoint> points;
  for (const double size : sizes) {
    double sum = 0, weights = 0;
    for (const MeasuredCollective* one : as_far) {
      const double weight = Weight(Between(one->key, key));
      sum += weight * BeyondLine(*one, line, size);
      weights += weight;
    }
    points.push_back({size, TimeS(line, load, size) * std::exp(sum / weights)});
  }
  MakeRising(points);
  return points;
}

double NearestDoublings(const Basis& as_far, const GroupShape& group) {
  double nearest = std::numeric_limits<double>::infinity();
  for (const MeasuredCollective* one : as_far) nearest = std::min(nearest, Between(one->key.group, group));
  return nearest;
}

// How the error grows with the way from what was measured.
double Growth(const Basis& as_far, const GroupShape& group) {
  return std::sqrt(std::max(1.0, NearestDoublings(as_far, group)));
}

std::vector<double> SizesOf(const MeasuredCollective& one) {
  std::vector<double> sizes;
  for (const TimePoint& point : one.loaded.points) sizes.push_back(point.size);
  return sizes;
}

// |log(measured / predicted)| at each point of a curve that `basis` does not contain, a doubling; empty where the basis
// says nothing of it.
std::vector<double> MissesOf(const MeasuredCollective& held_out, const Basis& basis, const LinkUse& use,
                             const Wires& wires) {
  const Basis as_far = AsFar(basis, held_out.key);
  if (!Serves(as_far, held_out.key)) return {};
  const LinkLine line = LineThrough(basis, &use, wires);
  const std::vector<TimePoint> predicted =
      PredictedPoints(held_out.key, held_out.loaded.load(use), line, as_far, SizesOf(held_out));
  const double growth = Growth(as_far, held_out.key.group);
  std::vector<double> misses;
  for (size_t i = 0; i < predicted.size(); ++i) {
    misses.push_back(std::abs(std::log(held_out.loaded.points[i].time_s / predicted[i].time_s)) / growth);
  }
  return misses;
}

Basis PointersTo(const std::vector<MeasuredCollective>& measured) {
  Basis basis;
  for (const MeasuredCollective& one : measured) basis.push_back(&one);
  return basis;
}

}  // namespace

std::vector<MeasuredCollective> CollectivesThatTeach(const Profile& profile) {
  std::vector<const CollectiveModel*> entries;
  for (const CollectiveModel& entry : profile.collectives) {
    if (Teaches(entry.key)) entries.push_back(&entry);
  }
  std::vector<MeasuredCollective> all;
  for (const CollectiveModel* entry : Thinned(std::move(entries), LinkModel::kMostCurves)) {
    if (std::optional<MeasuredCollective> measured = Read(*entry)) all.push_back(*std::move(measured));
  }
  return all;
}

LinkModel::LinkModel(const Profile& profile)
    : measured_(CollectivesThatTeach(profile)), wires_(WiresOf(profile.cluster)) {
  if (measured_.empty()) return;
  line_ = LineThrough(PointersTo(measured_), /*use=*/nullptr, wires_);
  for (const bool group : {false, true}) {
    for (const bool operation : {false, true}) HoldOut({group, operation});
  }
}

void LinkModel::HoldOut(const Lack& lack) {
  const Basis all = PointersTo(measured_);
  for (const MeasuredCollective* held_out : Thinned(all, kMostHeldOut)) {
    const bool spans = Spans(held_out->key.group);
    const Basis basis = Those(all, [&](const CollectiveKey& one) {
      const bool same_group = one.group == held_out->key.group;
      const bool same_operation = SameOperation(one, held_out->key) && Spans(one.group) == spans;
      if (lack.group || lack.operation) return !(lack.group && same_group) && !(lack.operation && same_operation);
      return one != held_out->key;
    });
    const std::vector<double> misses = MissesOf(*held_out, basis, line_->use, wires_);
    if (misses.empty()) continue;
    HeldOut& held = held_out_[lack.group][lack.operation][spans];
    held.misses.insert(held.misses.end(), misses.begin(), misses.end());
    // What of it misses together counts once.
    const int curve = static_cast<int>(held_out - all.front());
    held.units.insert(lack.operation ? OperationOf(held_out->key) : std::pair(curve, 0));
  }
}

LinkModel::Lack LinkModel::LackOf(const CollectiveKey& key) const {
  const auto none = [&](auto same) {
    return std::ranges::none_of(measured_, [&](const MeasuredCollective& one) {
      return Spans(one.key.group) == Spans(key.group) && same(one.key);
    });
  };
  return {.group = none([&](const CollectiveKey& one) { return one.group == key.group; }),
          .operation = none([&](const CollectiveKey& one) { return SameOperation(one, key); })};
}

std::optional<double> LinkModel::BoundOf(const Lack& lack, bool spans) const {
  const HeldOut& held = held_out_[lack.group][lack.operation][spans];
  if (held.units.empty()) return std::nullopt;
  const double stretch = NextMagnitudeBound90(std::vector<double>(held.units.size(), 1.0));
  return stretch * Quantile(held.misses, 0.9);
}

// No less than what an easier question misses by.
double LinkModel::UntestedBound(bool spans) const {
  double bound = std::log(kUntestedRatio);
  for (const bool group : {false, true}) {
    for (const bool operation : {false, true}) {
      bound = std::max(bound, BoundOf({group, operation}, spans).value_or(0));
    }
  }
  return bound;
}

std::optional<LinkPrediction> LinkModel::Predict(CollectiveKey key) const {
  key.contention = Contention::kNone;
  if (!line_ || key.group.size == 1 || key.ctas != 0) return std::nullopt;
  const Basis as_far = AsFar(PointersTo(measured_), key);
  const std::optional<LinkLoad> load = LoadOf(key, line_->use.route);
  if (!load || !Serves(as_far, key)) return std::nullopt;

  const Lack lack = LackOf(key);
  const Basis nearest =
      lack.operation ? as_far : Those(as_far, [&](const CollectiveKey& one) { return SameOperation(one, key); });
  std::set<double> sizes;
  double interval_log = 0;
  for (const MeasuredCollective* one : nearest) {
    for (const double size : SizesOf(*one)) sizes.insert(size);
    interval_log = std::max(interval_log, one->interval_log);
  }
  const auto points = PredictedPoints(key, *load, *line_, as_far,
                                      Thinned(std::vector<double>(sizes.begin(), sizes.end()), kMostPoints));

  const std::optional<double> tested = BoundOf(lack, Spans(key.group));
  const double bound_log = tested.value_or(UntestedBound(Spans(key.group))) * Growth(as_far, key.group);
  LinkPrediction prediction = {.model = {key, MakeCostModel(LogLog{points})}, .tested = tested.has_value()};
  FitQuality& quality = prediction.model.model.fit.emplace();
  quality.chosen = FormName(prediction.model.model.curve);
  quality.interval_high_ratio = std::exp(std::hypot(bound_log, interval_log));
  quality.interval_low_ratio = 1 / quality.interval_high_ratio;
  const bool usable =
      std::isfinite(quality.interval_high_ratio) && std::ranges::all_of(points, [](const TimePoint& point) {
        return std::isfinite(point.time_s) && point.time_s > 0;
      });
  if (!usable) return std::nullopt;  // Of costs hundreds of decades apart nothing can be said.
  return prediction;
}

std::string Describe(const LinkPrediction& prediction) {
  const FitQuality& quality = *prediction.model.model.fit;
  constexpr double kSaysLittle = 4;
  return StrCat(Describe(Essential(prediction.model.key)), ": not measured; extrapolated from links, 90 % interval × ",
                BriefNumber(quality.interval_low_ratio), " to ", BriefNumber(quality.interval_high_ratio),
                quality.interval_high_ratio > kSaysLittle ? ", which is next to unknown: measure it" : "",
                prediction.tested ? "" : ", assumed: no measured group could be held out to test it");
}

}  // namespace moeplan
