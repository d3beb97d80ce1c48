// The reference itself: its gradients against central differences of its own output and of the router's losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "executor/reference/reference_gradients.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/plain_statistics.h"
#include "tests/executor/random_router.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

struct Problem {
  Layer layer;
  LayerWeights weights;
  std::vector<float> input, output_gradient;
  int capacity = 0;
};

Problem RandomProblem(std::mt19937_64& random) {
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  Problem problem;
  Layer& layer = problem.layer;
  layer = {.batch = 1,
           .sequence_length = between(1, 6),
           .model_dim = between(1, 6),
           .hidden_dim = between(1, 6),
           .experts = between(1, 6),
           .top_k = 1,
           .capacity_factor = 1,
           .bytes_per_element = 4,
           .expert_matrices = between(2, 3),
           .gate = static_cast<GateKind>(between(0, static_cast<int>(GateKind::kHash))),
           .expert_bias = between(0, 1) == 1,
           .shared_hidden_dim = between(0, 3),
           .aux_loss_coefficient = between(0, 1) * 0.5,
           .z_loss_coefficient = between(0, 1) * 0.25};
  layer.top_k = layer.gate == GateKind::kSwitch ? 1 : between(1, layer.experts);
  testing::DrawRouter(random, layer, Phase::kTraining);
  problem.capacity = between(1, layer.sequence_length);
  const uint64_t seed = random();
  problem.weights = MakeWeights(layer, ShardOf(layer, {}, 0), seed);
  problem.input = MakeInput(layer, {}, 0, seed);
  problem.output_gradient = MakeOutputGradient(layer, {}, 0, seed);
  return problem;
}

ReferenceOutput Forward(const Problem& problem) {
  return ComputeReference(problem.layer, problem.weights, problem.input, problem.capacity, /*slices=*/1);
}

// Σ output_gradient · output, and the router's losses.
double Loss(const Problem& problem, const ReferenceOutput& forward) {
  const RouterStatistics statistics = testing::PlainStatistics(problem.layer, problem.input, problem.weights, forward);
  double loss = problem.layer.aux_loss_coefficient * LoadBalanceLoss(statistics) +
                problem.layer.z_loss_coefficient * RouterZLoss(statistics);
  for (size_t i = 0; i < forward.output.size(); ++i) loss += problem.output_gradient[i] * forward.output[i];
  return loss;
}

// What comes out with one of the problem's numbers moved.
struct Moved {
  double value, loss;
  ReferenceOutput forward;
};
Moved Move(const Problem& problem, float& value, float step) {
  const float unmoved = value;
  value += step;
  Moved moved{.value = value, .forward = Forward(problem)};
  moved.loss = Loss(problem, moved.forward);
  value = unmoved;
  return moved;
}

void ExpectSlopes(Problem& problem, std::vector<float>& values, const ReferenceGradient& gradient, const char* what) {
  ASSERT_EQ(values.size(), gradient.values.size()) << what;
  const ReferenceOutput middle = Forward(problem);
  const double middle_loss = Loss(problem, middle);
  for (size_t i = 0; i < values.size(); ++i) {
    const Moved up = Move(problem, values[i], 1e-2F), down = Move(problem, values[i], -1e-2F);
    // Where the step routes some token otherwise there is no slope to compare with.
    const auto routed_alike = [&](const ReferenceOutput& other) {
      return other.experts == middle.experts && other.kept == middle.kept;
    };
    if (!routed_alike(up.forward) || !routed_alike(down.forward)) continue;
    double slope = (up.loss - down.loss) / (up.value - down.value);
    if (problem.layer.swiglu_limit > 0) {
      // Where a value passes the limit slopes have a step, and both sides are right.
      const double above = (up.loss - middle_loss) / (up.value - values[i]);
      const double below = (middle_loss - down.loss) / (values[i] - down.value);
      slope = std::clamp(gradient.values[i], std::min(above, below), std::max(above, below));
    }
    EXPECT_NEAR(gradient.values[i], slope, 3e-3 * (1 + gradient.largest_magnitude)) << what << " " << i;
  }
}

void ExpectSlopes(Problem& problem, ExpertWeights& weights, const ReferenceExpertGradients& gradients) {
  ExpectSlopes(problem, weights.up, gradients.up, "up");
  ExpectSlopes(problem, weights.gate_up, gradients.gate_up, "gate_up");
  ExpectSlopes(problem, weights.down, gradients.down, "down");
  ExpectSlopes(problem, weights.up_bias, gradients.up_bias, "up_bias");
  ExpectSlopes(problem, weights.gate_up_bias, gradients.gate_up_bias, "gate_up_bias");
  ExpectSlopes(problem, weights.down_bias, gradients.down_bias, "down_bias");
}

TEST(ReferenceGradientsTest, AreTheSlopesOfTheOutput) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    Problem problem = RandomProblem(random);
    const Layer& layer = problem.layer;
    SCOPED_TRACE(StrCat("case ", i, ": L ", layer.sequence_length, " M ", layer.model_dim, " H ", layer.hidden_dim,
                        " E ", layer.experts, " k ", layer.top_k, " gate ", static_cast<int>(layer.gate), " matrices ",
                        layer.expert_matrices, " capacity ", problem.capacity, " losses ", layer.aux_loss_coefficient,
                        " ", layer.z_loss_coefficient, " limit ", layer.swiglu_limit, " router ",
                        testing::Describe(layer.router)));
    const ReferenceGradients gradients =
        ComputeReferenceGradients(layer, problem.weights, problem.input, problem.output_gradient, Forward(problem));
    ExpectSlopes(problem, problem.input, gradients.input, "input");
    // The gradient of the gate has that of its bias behind it.
    const size_t weights = problem.weights.gate.size();
    const auto part = [&](size_t first, size_t count) {
      const auto begin = gradients.gate.values.begin() + static_cast<int64_t>(first);
      return ReferenceGradient{{begin, begin + static_cast<int64_t>(count)}, gradients.gate.largest_magnitude};
    };
    ExpectSlopes(problem, problem.weights.gate, part(0, weights), "gate");
    ExpectSlopes(problem, problem.weights.gate_bias, part(weights, problem.weights.gate_bias.size()), "gate_bias");
    ExpectSlopes(problem, problem.weights.experts, gradients.experts);
    ExpectSlopes(problem, problem.weights.shared, gradients.shared);
  }
}

}  // namespace
}  // namespace moeplan::executor
