#include "executor/layer/routed_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "executor/layer/mix.h"
#include "models/check.h"
#include "models/routing/expert_load.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

constexpr uint64_t kLogitSeed = 0x726f75746564;

bool ChoosesByScores(GateKind gate) {
  return gate == GateKind::kTopK || gate == GateKind::kSwitch || gate == GateKind::kBatchPrioritized;
}

// Gives the probability of each to be among `count`, in proportion to its weight, but at most 1. They add up to
// `count`.
std::vector<double> Probabilities(const std::vector<double>& weights, int count) {
  std::vector<double> probabilities(weights.size(), 0);
  std::vector<bool> certain(weights.size(), false);
  for (;;) {
    double weight = 0, left = count;
    int others = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (certain[i]) left -= 1;
      if (!certain[i]) weight += weights[i], ++others;
    }
    bool more_certain = false;
    for (size_t i = 0; i < weights.size(); ++i) {
      // Nobody else has weight: the rest is shared evenly.
      if (!certain[i]) probabilities[i] = weight > 0 ? left * (weights[i] / weight) : left / others;
      if (certain[i] || probabilities[i] < 1) continue;
      probabilities[i] = 1;
      certain[i] = more_certain = true;
    }
    if (!more_certain) return probabilities;
  }
}

// A token that has chosen a group takes some of its experts.
std::span<const double> SharesOfGroup(const std::vector<double>& shares, int group, int groups) {
  const size_t size = shares.size() / groups;
  return std::span(shares).subspan(group * size, size);
}

class Chooser {
 public:
  explicit Chooser(const Workload& workload)
      : shares_(ExpertShares(workload)),
        choices_(workload.layer.top_k),
        groups_(workload.layer.router.expert_groups),
        groups_per_token_(workload.layer.router.groups_per_token) {
    for (int group = 0; group < groups_; ++group) {
      const auto of_group = SharesOfGroup(shares_, group, groups_);
      group_shares_.push_back(std::accumulate(of_group.begin(), of_group.end(), 0.0));
    }
  }

  std::vector<int> Draw(std::mt19937_64& engine) const {
    std::vector<int> experts;
    std::vector<int> groups = DrawInProportion(group_shares_, groups_per_token_, engine);
    std::ranges::shuffle(groups, engine);
    for (int i = 0; i < groups_per_token_; ++i) {
      const int of_group = choices_ / groups_per_token_ + (i < choices_ % groups_per_token_ ? 1 : 0);
      const auto shares = SharesOfGroup(shares_, groups[i], groups_);
      const int first = groups[i] * static_cast<int>(shares.size());
      for (const int expert : DrawInProportion({shares.begin(), shares.end()}, of_group, engine)) {
        experts.push_back(first + expert);
      }
    }
    return experts;
  }

 private:
  std::vector<double> shares_, group_shares_;
  int choices_, groups_, groups_per_token_;
};

}  // namespace

bool FollowsRouting(const Workload& workload) { return !IsEven(workload) && ChoosesByScores(workload.layer.gate); }

Status CheckRoutable(const Workload& workload) {
  const Layer& layer = workload.layer;
  if (!FollowsRouting(workload) || layer.model_dim >= layer.experts) return OkStatus();
  return InvalidInput(StrCat("layer.modelDim: found ", layer.model_dim, ", expected at least layer.experts, which is ",
                             layer.experts, ", to run a layer with `routing`; leave `routing` out to run it evenly"));
}

void TakeFeaturesAsLogits(const Layer& layer, LayerWeights& weights) {
  MOEPLAN_CHECK(layer.model_dim >= layer.experts);
  std::ranges::fill(weights.gate, 0.0F);
  for (size_t expert = 0; expert < static_cast<size_t>(layer.experts); ++expert) {
    weights.gate[expert * layer.model_dim + expert] = 1;
  }
  std::ranges::fill(weights.gate_bias, 0.0F);
  std::ranges::fill(weights.correction_bias, 0.0F);
}

std::vector<int> DrawInProportion(const std::vector<double>& weights, int count, std::mt19937_64& engine) {
  MOEPLAN_CHECK(count <= static_cast<int>(weights.size()));
  const std::vector<double> probabilities = Probabilities(weights, count);
  std::vector<int> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, engine);
  std::vector<int> drawn, others;
  double next = std::uniform_real_distribution(0.0, 1.0)(engine), end = 0;
  for (const int i : order) {
    end += probabilities[i];
    const bool chosen = next < end && static_cast<int>(drawn.size()) < count;
    if (chosen) next += 1;
    (chosen ? drawn : others).push_back(i);
  }
  // Rounding may leave the last point just beyond the line.
  for (size_t i = 0; static_cast<int>(drawn.size()) < count; ++i) drawn.push_back(others[i]);
  return drawn;
}

void WriteLogits(const Workload& workload, int batch, uint64_t seed, std::vector<float>& input) {
  const Layer& layer = workload.layer;
  MOEPLAN_CHECK(FollowsRouting(workload) && CheckRoutable(workload).ok());
  const Chooser chooser(workload);
  std::mt19937_64 engine(Mix(kLogitSeed + seed) + batch);
  std::uniform_real_distribution<float> above_one(1, 2);
  for (size_t row = 0; row < input.size(); row += layer.model_dim) {
    const std::span logits = std::span(input).subspan(row, layer.experts);
    std::ranges::generate(logits, [&] { return -above_one(engine); });
    for (const int expert : chooser.Draw(engine)) logits[expert] = above_one(engine);
  }
}

}  // namespace moeplan::executor
