// The routers of published models, made from their configs: choices and weights are those that the publishers' own code
// computes, written here as plainly as possible in double precision.
//
// DeepSeek-V3 and Kimi K2: Gate of DeepSeek-V3's inference/model.py. GPT-OSS: GptOssTopKRouter, Llama 4: Llama4Router,
// Qwen3 and Mixtral: their *SparseMoeBlock, of Hugging Face's transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "executor/host/gating.h"
#include "models/model/hf_config.h"
#include "models/text.h"
#include "models/workload/expert.h"
#include "proto/json.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

struct Choices {
  std::vector<int32_t> experts;
  std::vector<double> weights;
  std::vector<double> margins;  // How much each that was chosen, expert or group, was ahead of the next.
};

// The indices of the `count` largest values, the largest first.
std::vector<int32_t> TopK(const std::vector<double>& values, int count, std::vector<double>& margins) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return values[a] > values[b]; });
  for (int i = 0; i < count && i + 1 < static_cast<int>(order.size()); ++i) {
    margins.push_back(values[order[i]] - values[order[i + 1]]);
  }
  order.resize(count);
  return order;
}

std::vector<double> SoftmaxOf(const std::vector<double>& logits) {
  std::vector<double> shares(logits.size());
  std::ranges::transform(logits, shares.begin(), [](double logit) { return std::exp(logit); });
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return shares;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> At(const std::vector<double>& values, const std::vector<int32_t>& places) {
  std::vector<double> found;
  for (const int32_t place : places) found.push_back(values[place]);
  return found;
}

struct DeepSeekGate {
  int experts, groups, top_groups, top_k;
  double route_scale;

  Choices operator()(const std::vector<double>& logits, const std::vector<double>& bias) const {
    std::vector<double> original(experts), scores(experts), of_groups(groups);
    for (int expert = 0; expert < experts; ++expert) original[expert] = Sigmoid(logits[expert]);
    for (int expert = 0; expert < experts; ++expert) scores[expert] = original[expert] + bias[expert];
    const int of_group = experts / groups;
    for (int group = 0; group < groups; ++group) {
      std::vector<double> own(scores.begin() + group * of_group, scores.begin() + (group + 1) * of_group);
      std::ranges::sort(own, std::greater<>());
      of_groups[group] = own[0] + own[1];
    }
    Choices choices;
    const std::vector<int32_t> chosen = TopK(of_groups, top_groups, choices.margins);
    for (int expert = 0; expert < experts; ++expert) {
      if (std::ranges::find(chosen, expert / of_group) == chosen.end()) scores[expert] = -INFINITY;
    }
    choices.experts = TopK(scores, top_k, choices.margins);
    choices.weights = At(original, choices.experts);
    const double all = std::accumulate(choices.weights.begin(), choices.weights.end(), 0.0);
    for (double& weight : choices.weights) weight *= route_scale / all;
    return choices;
  }
};

// The softmax of the chosen logits.
Choices GptOssRouter(const std::vector<double>& logits, int top_k) {
  Choices choices;
  choices.experts = TopK(logits, top_k, choices.margins);
  choices.weights = SoftmaxOf(At(logits, choices.experts));
  return choices;
}

Choices SoftmaxRouter(const std::vector<double>& logits, int top_k, bool norm_topk_prob) {
  const std::vector<double> probabilities = SoftmaxOf(logits);
  Choices choices;
  choices.experts = TopK(probabilities, top_k, choices.margins);
  choices.weights = At(probabilities, choices.experts);
  const double all = std::accumulate(choices.weights.begin(), choices.weights.end(), 0.0);
  for (double& weight : choices.weights) weight /= norm_topk_prob ? all : 1;
  return choices;
}

Choices Llama4Router(const std::vector<double>& logits) {
  Choices choices;
  choices.experts = TopK(logits, 1, choices.margins);
  choices.weights = {Sigmoid(logits[choices.experts[0]])};
  return choices;
}

Layer LayerOfShipped(const std::string& model) {
  const std::string name = StrCat(model, ".json");
  const auto text = ReadTextFile(StrCat(MOEPLAN_MODELS, "/", name));
  EXPECT_EQ(text.status(), OkStatus());
  const auto config = ModelFromHfConfig(*text, name);
  EXPECT_EQ(config.status(), OkStatus());
  return LayerOf(*config);
}

// Calls check(logits, correction bias, found choices) for many random tokens.
template <typename Check>
void ForTokens(const Layer& layer, Check check) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(-0.2F, 0.2F);
  std::vector<float> logits(layer.experts), bias(layer.experts), scores(layer.experts), weights(layer.top_k);
  std::vector<float> keys(layer.experts + layer.router.expert_groups);
  std::vector<int32_t> experts(layer.top_k);
  int compared = 0;
  for (int token = 0; token < 300 && !::testing::Test::HasFailure(); ++token) {
    const float spread = 1 + static_cast<float>(token % 5);
    std::ranges::generate(logits, [&] { return spread * normal(random); });
    std::ranges::generate(bias, [&] { return uniform(random); });
    Scores(layer, logits, scores);
    ChooseExperts(layer, {.logits = logits, .scores = scores}, bias, keys, experts, weights);
    const Choices expected =
        check(std::vector<double>(logits.begin(), logits.end()), std::vector<double>(bias.begin(), bias.end()));
    // Where scores in float tie that in double do not, either choice is right.
    if (std::ranges::any_of(expected.margins, [](double margin) { return margin < 1e-6; })) continue;
    EXPECT_EQ(experts, expected.experts) << "token " << token;
    for (size_t choice = 0; choice < experts.size(); ++choice) {
      EXPECT_NEAR(weights[choice], expected.weights[choice], 2e-6 * layer.router.weight_scale) << "token " << token;
    }
    ++compared;
  }
  EXPECT_GT(compared, 250);
}

TEST(RouterTest, DeepSeekV3AndKimiK2) {
  for (const auto& [model, scale] : {std::pair("deepseek-v3", 2.5), std::pair("kimi-k2", 2.827)}) {
    SCOPED_TRACE(model);
    const Layer layer = LayerOfShipped(model);
    EXPECT_EQ(layer.router.correction_bias, true);
    const DeepSeekGate gate = {layer.experts, layer.experts == 256 ? 8 : 1, layer.experts == 256 ? 4 : 1, 8, scale};
    ForTokens(layer, gate);
  }
}

TEST(RouterTest, GptOss) {
  for (const char* model : {"gpt-oss-20b", "gpt-oss-120b"}) {
    SCOPED_TRACE(model);
    const Layer layer = LayerOfShipped(model);
    EXPECT_TRUE(layer.router.bias && layer.expert_bias);
    EXPECT_EQ(layer.swiglu_limit, 7);
    ForTokens(layer, [](const std::vector<double>& logits, const auto&) { return GptOssRouter(logits, 4); });
  }
}

TEST(RouterTest, QwenAndMixtral) {
  for (const char* model : {"qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b", "mixtral-8x22b"}) {
    SCOPED_TRACE(model);
    const Layer layer = LayerOfShipped(model);
    EXPECT_EQ(layer.router, Router());
    ForTokens(layer, [&](const std::vector<double>& logits, const auto&) {
      return SoftmaxRouter(logits, layer.top_k, /*norm_topk_prob=*/true);
    });
  }
}

TEST(RouterTest, Llama4WeighsWhatItsExpertGets) {
  const Layer layer = LayerOfShipped("llama4-scout");
  EXPECT_TRUE(layer.router.weighs_input);
  ForTokens(layer, [](const std::vector<double>& logits, const auto&) { return Llama4Router(logits); });
}

TEST(RouterTest, ProbabilitiesOfSeveralMayStayAsTheyAre) {
  const Layer layer = {.experts = 60, .top_k = 4, .router = {.raw_weights = true}};  // Qwen2-MoE.
  ForTokens(layer, [](const std::vector<double>& logits, const auto&) {
    return SoftmaxRouter(logits, 4, /*norm_topk_prob=*/false);
  });
}

TEST(RouterTest, GroupsWithoutCorrectionAreChosenByTheirLargest) {
  // As in DeepSeek-V2, whose weights are not normalised: groups of 4, of which 1.
  const Layer layer = {.experts = 12,
                       .top_k = 2,
                       .router = {.raw_weights = true, .weight_scale = 16, .expert_groups = 3, .groups_per_token = 1}};
  ForTokens(layer, [](const std::vector<double>& logits, const auto&) {
    const std::vector<double> probabilities = SoftmaxOf(logits);
    Choices choices;
    const int group = TopK(probabilities, 1, choices.margins)[0] / 4;
    std::vector<double> own(12, -1);
    std::copy_n(probabilities.begin() + group * 4, 4, own.begin() + group * 4);
    choices.experts = TopK(own, 2, choices.margins);
    for (const int32_t expert : choices.experts) choices.weights.push_back(16 * probabilities[expert]);
    return choices;
  });
}

TEST(RouterTest, SigmoidsAreThoseOfTheMathLibrary) {
  for (float x = -100; x <= 100; x += 0.37F) {
    const double expected = x < -87 ? 0 : Sigmoid(x);
    EXPECT_NEAR(SigmoidOf(x), expected, 1e-5 * expected + 1e-45) << x;
  }
  EXPECT_TRUE(std::isnan(SigmoidOf(NAN)));
  EXPECT_EQ(SigmoidOf(INFINITY), 1);
  EXPECT_EQ(SigmoidOf(-INFINITY), 0);
}

TEST(RouterTest, ScoresThatAreAllZeroMakeWeightsOfZero) {
  const Layer layer = {.experts = 3, .top_k = 2, .router = {.score_function = ScoreFunction::kSigmoid}};
  const std::vector<float> logits = {-200, -300, -400};
  std::vector<float> scores(3), keys(4), weights(2);
  std::vector<int32_t> experts(2);
  const GateScore score = Scores(layer, logits, scores);
  ChooseExperts(layer, {.logits = logits, .scores = scores}, {}, keys, experts, weights);
  EXPECT_EQ(score.probability, 0);
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(weights, (std::vector<float>{0, 0}));
}

TEST(RouterTest, GptOssExpertsAreLimited) {
  const Layer layer = {.expert_matrices = 3, .swiglu_limit = 7};
  const ExpertFunction function = FunctionOf(layer);
  const SwiGluLimit limit = {layer.swiglu_limit};
  for (const auto& [up, gate] :
       {std::pair(0.5, -2.0), std::pair(9.0, 8.0), std::pair(-9.0, -30.0), std::pair(7.0, 7.0)}) {
    // GptOssExperts: gate.clamp(max=limit), up.clamp(-limit, limit), (up + 1) · gate · sigmoid(1.702 · gate).
    const double limited_up = std::clamp(up, -7.0, 7.0), limited_gate = std::min(gate, 7.0);
    const double expected = (limited_up + 1) * limited_gate * Sigmoid(1.702 * limited_gate);
    EXPECT_NEAR(function.value(limit.Up(up), limit.GateUp(gate)), expected, 1e-12);
    auto u = static_cast<float>(limit.Up(up)), g = static_cast<float>(limit.GateUp(gate));
    float hidden = 0;
    function.hidden(&u, &g, &hidden, 1);
    EXPECT_NEAR(hidden, expected, 1e-5 * std::abs(expected) + 1e-12);
    EXPECT_EQ(limit.UpSlope(up), std::abs(up) > 7 ? 0 : 1);
    EXPECT_EQ(limit.GateUpSlope(gate), gate > 7 ? 0 : 1);
  }
}

}  // namespace
}  // namespace moeplan::executor
