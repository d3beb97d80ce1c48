// Batches that are made to follow a routing, as the executor's own gate routes them.
#include "executor/layer/routed_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "executor/host/elements.h"
#include "executor/reference/reference_layer.h"
#include "models/routing/expert_load.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kTokens = 2000;

Workload WorkloadOf(int experts, int top_k, const ExpertRouting& routing, const Router& router = {}) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = kTokens,
                    .model_dim = experts + 3,
                    .hidden_dim = 1,
                    .experts = experts,
                    .top_k = top_k,
                    .bytes_per_element = 2,
                    .router = router};
  workload.routing = routing;
  const auto resolved = ResolveWorkload(workload, {.nodes = 1, .gpus_per_node = 1});
  EXPECT_EQ(resolved.status(), OkStatus());
  return *resolved;
}

// Counts by expert how many tokens of a batch choose it. The batch is stored in BF16, as layers have it.
std::vector<double> Chosen(const Workload& workload, uint64_t seed) {
  const Layer& layer = workload.layer;
  LayerWeights weights = MakeWeights(layer, ShardOf(layer, {}, 0), seed);
  TakeFeaturesAsLogits(layer, weights);
  std::vector<float> input = MakeInput(layer, workload.layout, 0, seed);
  WriteLogits(workload, 0, seed, input);
  std::ranges::transform(input, input.begin(), RoundToBfloat16);
  const ReferenceOutput output = ComputeReference(layer, weights, input, kTokens, 1);
  std::vector<double> chosen(layer.experts);
  for (const int32_t expert : output.experts) chosen[expert] += 1;
  for (int token = 0; token < kTokens; ++token) {
    const auto first = output.experts.begin() + token * layer.top_k;
    std::set<int> groups;
    for (int i = 0; i < layer.top_k; ++i) {
      groups.insert(first[i] / (layer.experts / layer.router.expert_groups));
      // Its logit says that it was drawn.
      EXPECT_GT(input[static_cast<size_t>(token) * layer.model_dim + first[i]], 0);
    }
    EXPECT_LE(static_cast<int>(groups.size()), layer.router.groups_per_token);
  }
  return chosen;
}

// Expects a count of independent tokens within four and a half standard deviations.
void ExpectNear(double found, double expected) {
  const double probability = expected / kTokens;
  EXPECT_NEAR(found, expected, 4.5 * std::sqrt(kTokens * probability * (1 - probability)) + 1e-6);
}

TEST(RoutedBatchTest, EveryExpertIsChosenAsOftenAsPricesCount) {
  const Router sigmoid = {.score_function = ScoreFunction::kSigmoid, .correction_bias = true, .bias = true};
  for (const auto& [top_k, router] : {std::pair(1, Router{}), {2, Router{}}, {2, sigmoid}, {5, sigmoid}}) {
    for (const double skew : {0.3, 0.6, 1.2}) {
      SCOPED_TRACE(testing::Message() << "top " << top_k << ", skew " << skew);
      const Workload workload = WorkloadOf(12, top_k, {.skew = skew});
      const std::vector<double> chosen = Chosen(workload, TestSeed());
      const std::vector<double> expected = ExpertPairs(workload);
      ASSERT_DOUBLE_EQ(std::accumulate(expected.begin(), expected.end(), 0.0), top_k * kTokens);
      EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), 0.0), top_k * kTokens);
      // The part of an expert's share that is beyond 1/k goes to the others.
      const bool as_priced = std::ranges::max(expected) <= kTokens;
      for (size_t expert = 0; expert < chosen.size(); ++expert) {
        if (as_priced) ExpectNear(chosen[expert], expected[expert]);
        EXPECT_TRUE(expected[expert] < kTokens || chosen[expert] == kTokens);
      }
    }
  }
}

TEST(RoutedBatchTest, ATokenKeepsToAsManyGroupsAsItsRouterLets) {
  const Router router = {
      .score_function = ScoreFunction::kSigmoid, .expert_groups = 4, .groups_per_token = 2, .correction_bias = true};
  ExpertRouting routing;
  for (int expert = 0; expert < 16; ++expert) routing.tokens_per_expert.push_back(8 + expert % 4 + expert / 4);
  for (const int top_k : {2, 4, 6}) {
    const Workload workload = WorkloadOf(16, top_k, routing, router);
    const std::vector<double> chosen = Chosen(workload, TestSeed()), expected = ExpertPairs(workload);
    for (size_t expert = 0; expert < chosen.size(); ++expert) ExpectNear(chosen[expert], expected[expert]);
  }
}

TEST(RoutedBatchTest, ExpertsWithoutAShareFillUpWhatTheOthersCannotTake) {
  const Workload workload = WorkloadOf(6, 4, {.tokens_per_expert = {0, 3, 0, 1, 0, 0}});
  const std::vector<double> chosen = Chosen(workload, TestSeed());
  EXPECT_EQ(chosen[1], kTokens);
  EXPECT_EQ(chosen[3], kTokens);
  for (const int expert : {0, 2, 4, 5}) ExpectNear(chosen[expert], kTokens / 2.0);
}

TEST(RoutedBatchTest, DrawsHaveTheirProbabilities) {
  std::mt19937_64 engine(TestSeed());
  const std::vector<double> weights = {1, 0, 2, 3, 2};
  std::vector<double> drawn(weights.size());
  for (int i = 0; i < kTokens; ++i) {
    const std::vector<int> one = DrawInProportion(weights, 2, engine);
    ASSERT_EQ(std::set<int>(one.begin(), one.end()).size(), 2U);
    for (const int which : one) drawn[which] += 1;
  }
  for (size_t i = 0; i < weights.size(); ++i) ExpectNear(drawn[i], kTokens * weights[i] / 4);
  EXPECT_THAT(DrawInProportion(weights, 0, engine), IsEmpty());
  const std::vector<int> all = DrawInProportion(weights, 5, engine);
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 5U);
}

TEST(RoutedBatchTest, TheSameSeedGivesTheSameBatchAndBatchesDiffer) {
  const Workload workload = WorkloadOf(8, 2, {.skew = 1});
  const auto made = [&](int batch, uint64_t seed) {
    std::vector<float> input(static_cast<size_t>(kTokens) * workload.layer.model_dim);
    WriteLogits(workload, batch, seed, input);
    return input;
  };
  EXPECT_EQ(made(1, 7), made(1, 7));
  EXPECT_NE(made(1, 7), made(0, 7));
  EXPECT_NE(made(1, 7), made(1, 8));
}

TEST(RoutedBatchTest, EvenRoutingsAndGatesThatDrawAreLeftAlone) {
  EXPECT_FALSE(FollowsRouting(WorkloadOf(8, 2, {.skew = 0})));
  Workload workload = WorkloadOf(8, 2, {.skew = 1});
  EXPECT_TRUE(FollowsRouting(workload));
  for (const GateKind gate : {GateKind::kRandom, GateKind::kHash}) {
    workload.layer.gate = gate;
    EXPECT_FALSE(FollowsRouting(workload));
  }
}

TEST(RoutedBatchTest, FewerFeaturesThanExpertsAreRefused) {
  Workload workload = WorkloadOf(8, 2, {.skew = 1});
  EXPECT_EQ(CheckRoutable(workload), OkStatus());
  workload.layer.model_dim = 7;
  EXPECT_THAT(CheckRoutable(workload).message(), HasSubstr("layer.modelDim: found 7"));
  workload.routing.reset();
  EXPECT_EQ(CheckRoutable(workload), OkStatus());
}

}  // namespace
}  // namespace moeplan::executor
