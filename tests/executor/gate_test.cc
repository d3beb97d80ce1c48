// The gate kernel of a backend against each gate's definition, written out in the slowest way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "executor/gate_draws.h"
#include "executor/gate_scores.h"
#include "executor/host/elements.h"
#include "executor/host/gating.h"
#include "executor/host/host_device.h"
#include "executor/host/host_kernels.h"
#include "executor/layer/layer_weights.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

// Tokens with equal rows among them, so that there are ties to settle.
struct Batch {
  Layer layer;
  int tokens = 0;
  int capacity = 0;
  std::vector<float> input;
  LayerWeights weights;

  std::span<const float> Row(int token) const {
    return std::span(input).subspan(static_cast<size_t>(token) * layer.model_dim, layer.model_dim);
  }
};

Batch RandomBatch(GateKind gate, std::mt19937_64& random) {
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  Batch batch{.tokens = between(1, 40), .capacity = between(1, 12)};
  const int experts = between(1, 8);
  batch.layer = {.batch = 1,
                 .sequence_length = batch.tokens,
                 .model_dim = between(1, 12),
                 .hidden_dim = 1,
                 .experts = experts,
                 .top_k = gate == GateKind::kSwitch ? 1 : between(1, std::min(experts, 3)),
                 .capacity_factor = 1,
                 .bytes_per_element = 4,
                 .gate = gate};
  batch.weights = MakeWeights(batch.layer, ShardOf(batch.layer, {}, 0), random());
  batch.input = MakeInput(batch.layer, {}, 0, random());
  for (int token = 1; token < batch.tokens; ++token) {
    if (between(0, 3) != 0) continue;
    const auto twin = batch.Row(between(0, token - 1));
    std::ranges::copy(twin, batch.input.begin() + static_cast<int64_t>(token) * batch.layer.model_dim);
  }
  return batch;
}

// What the kernel made of tokens [first, first + count) of a batch.
struct Routed {
  std::vector<int32_t> expert, slot;
  std::vector<float> weight;
  RouterStatistics statistics;
};

Routed RouteSlice(const Batch& batch, int first, int count) {
  const Layer& layer = batch.layer;
  const size_t pairs = static_cast<size_t>(count) * RoutingWidth(layer);
  const std::unique_ptr<HostDevice> device = MakeHostDevice();
  const auto stream = device->MakeStream("gate", StreamPriority::kNormal);
  const auto kernels = MakeHostKernels(layer, batch.weights).value();
  Routed routed{std::vector<int32_t>(pairs), std::vector<int32_t>(pairs), std::vector<float>(pairs), {}};
  std::vector<double> sums(RouterSums::Count(layer.experts), -1);
  const auto row_at = [&](int token) { return batch.input.begin() + static_cast<int64_t>(token) * layer.model_dim; };
  std::vector<float> rows(row_at(first), row_at(first + count));
  kernels->Gate({.tokens = {.data = reinterpret_cast<std::byte*>(rows.data()),
                            .rows_per_block = count,
                            .valid_rows = count,
                            .first_token = first},
                 .routing = {routed.expert.data(), routed.slot.data(), routed.weight.data()},
                 .capacity = batch.capacity,
                 .sums = RouterSums::At(sums.data(), layer.experts)},
                *stream);
  EXPECT_TRUE(device->Synchronize().ok());
  routed.statistics = StatisticsOf(sums, layer.experts);
  return routed;
}

Routed Route(const Batch& batch) { return RouteSlice(batch, 0, batch.tokens); }

struct Scores {
  std::vector<double> probability;
  double largest = 0;
};

std::vector<Scores> ScoresOf(const Batch& batch) {
  std::vector<Scores> scores(batch.tokens);
  for (int token = 0; token < batch.tokens; ++token) {
    double all = 0;
    for (int expert = 0; expert < batch.layer.experts; ++expert) {
      double logit = 0;
      for (int i = 0; i < batch.layer.model_dim; ++i) {
        logit += static_cast<double>(batch.Row(token)[i]) * batch.weights.gate[expert * batch.layer.model_dim + i];
      }
      scores[token].probability.push_back(std::exp(logit));
      all += std::exp(logit);
    }
    for (double& probability : scores[token].probability) probability /= all;
    scores[token].largest = *std::ranges::max_element(scores[token].probability);
  }
  return scores;
}

// Scores in double and in float may order what is this close either way; twins are equal in both.
constexpr double kClose = 1e-5;
bool Twins(const Batch& batch, int a, int b) { return std::ranges::equal(batch.Row(a), batch.Row(b)); }

// Whether a token comes before another by its score, ties to the lower token; `known` is false when it cannot be told.
struct Order {
  bool before = false, known = true;
};
Order Before(const Batch& batch, int a, double score_a, int b, double score_b) {
  if (Twins(batch, a, b)) return {a < b};
  return {score_a > score_b, std::abs(score_a - score_b) > kClose};
}

class GateTest : public ::testing::Test {
 protected:
  // Calls check(batch) for many random batches of `gate`.
  template <typename Check>
  void ForRandomBatches(GateKind gate, Check check) {
    std::mt19937_64 random(TestSeed());
    for (int i = 0; i < 150 && !HasFailure(); ++i) {
      const Batch batch = RandomBatch(gate, random);
      SCOPED_TRACE(StrCat("batch ", i, ": tokens ", batch.tokens, " E ", batch.layer.experts, " k ", batch.layer.top_k,
                          " capacity ", batch.capacity));
      check(batch);
    }
  }
};

// The pair's slot is the number of pairs of its expert that come before it.
template <typename ComesBefore>
void ExpectSlotsInOrder(const Batch& batch, const Routed& routed, ComesBefore comes_before) {
  const int k = batch.layer.top_k;
  for (int pair = 0; pair < batch.tokens * k; ++pair) {
    int at_least = 0, unknown = 0;
    for (int other = 0; other < batch.tokens * k; ++other) {
      if (other == pair || routed.expert[other] != routed.expert[pair]) continue;
      const Order order = comes_before(other / k, other % k, pair / k, pair % k);
      (order.known ? at_least : unknown) += order.known ? order.before : 1;
    }
    if (unknown > 0) continue;
    EXPECT_EQ(routed.slot[pair], at_least < batch.capacity ? at_least : -1) << "pair " << pair;
  }
}

void ExpectLargestProbabilitiesChosen(const Batch& batch, const Routed& routed) {
  const std::vector<Scores> scores = ScoresOf(batch);
  const int k = batch.layer.top_k;
  for (int token = 0; token < batch.tokens; ++token) {
    const std::vector<double>& probability = scores[token].probability;
    std::vector<double> sorted = probability;
    std::ranges::sort(sorted, std::greater());
    const double chosen = std::accumulate(sorted.begin(), sorted.begin() + k, 0.0);
    for (int choice = 0; choice < k; ++choice) {
      const int pair = token * k + choice;
      EXPECT_NEAR(probability[routed.expert[pair]], sorted[choice], kClose);
      EXPECT_NEAR(routed.weight[pair], sorted[choice] / (k > 1 ? chosen : 1), 10 * kClose);
    }
  }
}

TEST(ExpOfTest, IsAboutAsRightAsTheLastPlaceOfItsArgument) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ExpOf(0), 1);
  EXPECT_EQ(ExpOf(-0.0F), 1);
  EXPECT_EQ(ExpOf(-kInfinity), 0);
  EXPECT_EQ(ExpOf(-1000), 0);
  EXPECT_TRUE(std::isnan(ExpOf(kNan)));
  // Every 1009th float from -0 to -87.
  for (uint32_t bits = 0x80000000; FloatOf(bits) >= -87; bits += 1009) {
    const double x = FloatOf(bits), expected = std::exp(x);
    ASSERT_LE(std::abs(ExpOf(FloatOf(bits)) / expected - 1), std::ldexp(2.5 - 1.25 * x, -24)) << x;
  }
}

TEST(OrderOfTest, IsThatOfScoresWithNanAboveAll) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> rising = {-kInfinity, -2, -1e-40F, 0, 1e-45F, 0.5F, 1, kInfinity};
  for (size_t i = 1; i < rising.size(); ++i) EXPECT_LT(OrderOf(rising[i - 1]), OrderOf(rising[i]));
  EXPECT_LT(OrderOf(kInfinity), OrderOf(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(OrderOf(-std::numeric_limits<float>::quiet_NaN()), OrderOf(std::numeric_limits<float>::quiet_NaN()));
}

TEST_F(GateTest, TopKTakesTheLargestProbabilitiesAndSlotsInLexicographicOrder) {
  for (const GateKind gate : {GateKind::kTopK, GateKind::kSwitch}) {
    ForRandomBatches(gate, [](const Batch& batch) {
      const Routed routed = Route(batch);
      ExpectLargestProbabilitiesChosen(batch, routed);
      ExpectSlotsInOrder(batch, routed, [](int token, int choice, int than_token, int than_choice) {
        return Order{std::pair(token, choice) < std::pair(than_token, than_choice)};
      });
    });
  }
}

TEST_F(GateTest, BatchPrioritizedServesFirstChoicesByTheTokensLargestProbability) {
  ForRandomBatches(GateKind::kBatchPrioritized, [](const Batch& batch) {
    const Routed routed = Route(batch);
    const std::vector<Scores> scores = ScoresOf(batch);
    ExpectLargestProbabilitiesChosen(batch, routed);
    ExpectSlotsInOrder(batch, routed, [&](int token, int choice, int than_token, int than_choice) {
      if (choice != than_choice) return Order{choice < than_choice};
      return Before(batch, token, scores[token].largest, than_token, scores[than_token].largest);
    });
  });
}

TEST_F(GateTest, ExpertChoiceGivesEachExpertItsBestTokens) {
  ForRandomBatches(GateKind::kExpertChoice, [](const Batch& batch) {
    const Routed routed = Route(batch);
    const std::vector<Scores> scores = ScoresOf(batch);
    const int experts = batch.layer.experts, taken = std::min(batch.capacity, batch.tokens);
    for (int expert = 0; expert < experts; ++expert) {
      std::set<int32_t> slots;
      for (int token = 0; token < batch.tokens; ++token) {
        const int pair = token * experts + expert;
        EXPECT_EQ(routed.expert[pair], expert);
        EXPECT_NEAR(routed.weight[pair], scores[token].probability[expert], kClose);
        if (routed.slot[pair] >= 0) slots.insert(routed.slot[pair]);
        int better = 0, unknown = 0;
        for (int other = 0; other < batch.tokens; ++other) {
          if (other == token) continue;
          const Order order =
              Before(batch, other, scores[other].probability[expert], token, scores[token].probability[expert]);
          better += order.known && order.before;
          unknown += !order.known;
        }
        const bool taken_for_sure = better + unknown < taken, left_for_sure = better >= taken;
        EXPECT_TRUE(!taken_for_sure || routed.slot[pair] >= 0) << "token " << token << " expert " << expert;
        EXPECT_TRUE(!left_for_sure || routed.slot[pair] < 0) << "token " << token << " expert " << expert;
      }
      EXPECT_EQ(static_cast<int>(slots.size()), taken);  // Each slot once, from 0 without a gap.
      EXPECT_EQ(*slots.rbegin(), taken - 1);
    }
  });
}

void ExpectDifferentExpertsOfEvenWeight(const Batch& batch, const Routed& routed) {
  const int k = batch.layer.top_k;
  for (int token = 0; token < batch.tokens; ++token) {
    const std::set<int32_t> chosen(routed.expert.begin() + token * k, routed.expert.begin() + (token + 1) * k);
    EXPECT_EQ(static_cast<int>(chosen.size()), k);
    EXPECT_GE(*chosen.begin(), 0);
    EXPECT_LT(*chosen.rbegin(), batch.layer.experts);
  }
  for (const float weight : routed.weight) EXPECT_FLOAT_EQ(weight, 1.0F / k);
}

TEST_F(GateTest, RandomAndHashDrawDifferentExpertsWhereverTheBatchIsCut) {
  for (const GateKind gate : {GateKind::kRandom, GateKind::kHash}) {
    ForRandomBatches(gate, [](const Batch& batch) {
      const Routed whole = Route(batch);
      ExpectDifferentExpertsOfEvenWeight(batch, whole);
      const int first = batch.tokens / 3, k = batch.layer.top_k;
      const Routed slice = RouteSlice(batch, first, batch.tokens - first);
      EXPECT_TRUE(std::ranges::equal(slice.expert, std::span(whole.expert).subspan(first * k)));
    });
  }
}

TEST_F(GateTest, HashSendsEqualTokensToEqualExperts) {
  ForRandomBatches(GateKind::kHash, [](const Batch& batch) {
    const Routed routed = Route(batch);
    for (int a = 0; a < batch.tokens; ++a) {
      for (int b = 0; b < a; ++b) {
        if (!Twins(batch, a, b)) continue;
        for (int choice = 0; choice < batch.layer.top_k; ++choice) {
          EXPECT_EQ(routed.expert[a * batch.layer.top_k + choice], routed.expert[b * batch.layer.top_k + choice]);
        }
      }
    }
  });
}

TEST_F(GateTest, DrawsAreEvenOverTheExperts) {
  for (const GateKind gate : {GateKind::kRandom, GateKind::kHash}) {
    Batch batch{.tokens = 12000, .capacity = 1};
    batch.layer = {.batch = 1,
                   .sequence_length = batch.tokens,
                   .model_dim = 2,
                   .hidden_dim = 1,
                   .experts = 6,
                   .top_k = 2,
                   .capacity_factor = 1,
                   .bytes_per_element = 4,
                   .gate = gate};
    batch.weights = MakeWeights(batch.layer, ShardOf(batch.layer, {}, 0), 1);
    batch.input = MakeInput(batch.layer, {}, 0, 1);
    // 24000 pairs over 6 experts: 4000 each, with a deviation of about 52; second choices are as even.
    const Routed routed = Route(batch);
    std::vector<int> second(6, 0);
    for (int token = 0; token < batch.tokens; ++token) ++second[routed.expert[2 * token + 1]];
    for (int expert = 0; expert < 6; ++expert) {
      EXPECT_NEAR(routed.statistics.pairs[expert], 4000, 300);
      EXPECT_NEAR(second[expert], 2000, 220);
    }
  }
}

// Two experts and two tokens of one element each, with gate weights 0 and 1: logits (0, x), probabilities of expert 1
// e^x / (1 + e^x).
TEST_F(GateTest, StatisticsAndLossesOfTwoTokensByHand) {
  Batch batch{.tokens = 2, .capacity = 1};
  batch.layer = {.batch = 1,
                 .sequence_length = 2,
                 .model_dim = 1,
                 .hidden_dim = 1,
                 .experts = 2,
                 .top_k = 1,
                 .capacity_factor = 1,
                 .bytes_per_element = 4};
  batch.weights = MakeWeights(batch.layer, ShardOf(batch.layer, {}, 0), 1);
  batch.weights.gate = {0, 1};
  // e^x = 3 and 1: probabilities (1/4, 3/4) and (1/2, 1/2); the tie goes to expert 0.
  batch.input = {std::log(3.0F), 0};
  RouterStatistics statistics = Route(batch).statistics;
  EXPECT_EQ(statistics.tokens, 2);
  EXPECT_EQ(statistics.pairs, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(DroppedPairs(statistics), 0);
  EXPECT_NEAR(MeanProbability(statistics)[0], 3.0 / 8, 1e-6);
  EXPECT_NEAR(MeanProbability(statistics)[1], 5.0 / 8, 1e-6);
  EXPECT_NEAR(LoadBalanceLoss(statistics), 1, 1e-6);  // 2·(1/2·3/8 + 1/2·5/8)
  // logsumexp: ln 4 and ln 2.
  EXPECT_NEAR(RouterZLoss(statistics), (std::pow(std::log(4), 2) + std::pow(std::log(2), 2)) / 2, 1e-6);
  // Entropies: ln 4 - 3/4·ln 3 and ln 2.
  EXPECT_NEAR(MeanEntropy(statistics), (std::log(4) - 0.75 * std::log(3) + std::log(2)) / 2, 1e-6);

  // Both tokens want expert 1, which has one slot. E·Σ f·P = 2·(0·1/4 + 1·3/4).
  batch.input = {std::log(3.0F), std::log(3.0F)};
  statistics = Route(batch).statistics;
  EXPECT_EQ(statistics.pairs, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(statistics.kept, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(DroppedPairs(statistics), 1);
  EXPECT_NEAR(LoadBalanceLoss(statistics), 1.5, 1e-6);
}

TEST_F(GateTest, ExpertChoiceIsEvenlyLoadedWhateverTheScores) {
  ForRandomBatches(GateKind::kExpertChoice, [](const Batch& batch) {
    const RouterStatistics statistics = Route(batch).statistics;
    EXPECT_EQ(DroppedPairs(statistics), 0);
    EXPECT_NEAR(LoadBalanceLoss(statistics), 1, kClose);
  });
}

TEST_F(GateTest, TheLossesOfTheRouterPullEachLogitByHand) {
  // Of 4 tokens, gated in two slices, 3 chose expert 0. Slopes of the probabilities: 1·2·(3/4, 1/4)/4.
  const Layer layer = {.experts = 2, .aux_loss_coefficient = 1, .z_loss_coefficient = 3};
  RouterLossSlopes slopes;
  FindSlopes(layer, std::vector<int32_t>{2, 0, 1, 1}, /*tokens=*/4, slopes);
  EXPECT_EQ(slopes.probability, (std::vector{0.375F, 0.125F}));
  EXPECT_EQ(slopes.log_sum_exp, 1.5F);  // 3·2/4
  // A token with p = (1/4, 3/4) and logsumexp 2: p·(slope - 1/4·3/8 - 3/4·1/8 + 1.5·2), on top of what is there.
  std::vector<float> gradients = {1, 0};
  const std::vector logits = {0.0F, std::log(3.0F)}, scores = {0.25F, 0.75F};
  AddRouterLossGradients(layer, slopes, {.log_sum_exp = 2}, {.logits = logits, .scores = scores}, gradients);
  EXPECT_FLOAT_EQ(gradients[0], 1 + 0.25F * (0.375F - 0.1875F + 3));
  EXPECT_FLOAT_EQ(gradients[1], 0.75F * (0.125F - 0.1875F + 3));
}

TEST_F(GateTest, NoTokensNoLoss) {
  const RouterStatistics none{.pairs = {0, 0}, .kept = {0, 0}, .probability_sum = {0, 0}};
  EXPECT_EQ(LoadBalanceLoss(none), 0);
  EXPECT_EQ(RouterZLoss(none), 0);
  EXPECT_EQ(MeanEntropy(none), 0);
}

}  // namespace
}  // namespace moeplan::executor
