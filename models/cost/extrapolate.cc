#include "models/cost/extrapolate.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace moeplan {
namespace {

double LogDifference(double a, double b) { return std::abs(std::log2(a / b)); }

bool OfOneNode(const GroupShape& group) { return group.ranks_per_node == group.size; }

struct ScaleTimes {
  double ratio;

  Curve operator()(LogLog curve) const { return Scaled(std::move(curve)); }
  Curve operator()(Interpolated curve) const { return Scaled(std::move(curve)); }
  Curve operator()(const AlphaBeta& line) const {
    return AlphaBeta{line.alpha_s * ratio, line.beta_s_per_unit * ratio};
  }
  // Its times have φ as a factor already.
  Curve operator()(const Efficiency& curve) const { return curve; }

  template <typename Points>
  Curve Scaled(Points curve) const {
    for (TimePoint& point : curve.points) point.time_s *= ratio;
    return curve;
  }
};

CostModel Scaled(const CostModel& model, double ratio) {
  CostModel scaled = model;
  scaled.curve = std::visit(ScaleTimes{ratio}, model.curve);
  scaled.summary.reset();
  return scaled;
}

}  // namespace

std::optional<StandIn> ExtrapolateGroup(const Profile& profile, const CollectiveKey& key) {
  if (key.collective == Collective::kAllToAllAllGather) return std::nullopt;
  const auto distance = [&](const CollectiveKey& measured) {
    return std::tuple(measured.collective != key.collective, measured.bytes_per_element != key.bytes_per_element,
                      LogDifference(measured.group.ranks_per_node, key.group.ranks_per_node),
                      LogDifference(measured.group.size, key.group.size));
  };
  const CollectiveModel* nearest = nullptr;
  for (const CollectiveModel& entry : profile.collectives) {
    const CollectiveKey& measured = entry.key;
    const bool serves = measured.collective != Collective::kAllToAllAllGather && measured.group.size > 1 &&
                        measured.algorithm == AllToAllAlgorithm::kDirect && measured.contention == Contention::kNone &&
                        OfOneNode(measured.group) == OfOneNode(key.group);
    if (serves && (nearest == nullptr || distance(measured) < distance(nearest->key))) nearest = &entry;
  }
  if (nearest == nullptr) return std::nullopt;
  const double ratio =
      BusFactor(key.collective, key.group.size) / BusFactor(nearest->key.collective, nearest->key.group.size);
  CollectiveKey asked = key;
  asked.algorithm = AllToAllAlgorithm::kDirect;
  asked.contention = Contention::kNone;
  return StandIn{{asked, Scaled(nearest->model, ratio)}, nearest->key};
}

const KernelModel* NearestGemm(const Profile& profile, const KernelKey& key) {
  const auto difference = [](const std::optional<int>& measured, const std::optional<int>& asked) {
    return measured && asked ? LogDifference(*measured, *asked) : 0;
  };
  const auto distance = [&](const KernelKey& measured) {
    const bool other_size =
        measured.bytes_per_element && key.bytes_per_element && *measured.bytes_per_element != *key.bytes_per_element;
    return std::pair(other_size,
                     difference(measured.model_dim, key.model_dim) + difference(measured.hidden_dim, key.hidden_dim));
  };
  const KernelModel* nearest = nullptr;
  for (const KernelModel& entry : profile.kernels) {
    if (entry.key.kernel != Kernel::kExpertGemm || entry.key.contention != Contention::kNone) continue;
    if (nearest == nullptr || distance(entry.key) < distance(nearest->key)) nearest = &entry;
  }
  return nearest;
}

}  // namespace moeplan
