// What stands between the matrices of experts, against the same functions in double precision.
#include "executor/cuda/activation_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "models/workload/expert.h"
#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

// Rows of full cells; every second cell is somebody else's.
struct ActivationCase {
  ActivationRows args;
  int experts = 0, cells = 0, rows_per_cell = 0;
  std::vector<CellPair> pairs;
  std::vector<float> kept, out_gradient, up_bias, gate_up_bias;  // Of the type's values.
  ExpertFunction function;

  size_t rows() const { return static_cast<size_t>(cells) * rows_per_cell; }
};

std::vector<float> Held(const std::vector<float>& values, ElementType type) {
  return ValuesOf(ElementBytes(values, type), type);
}

ActivationCase RandomCase(std::mt19937_64& random) {
  ActivationCase made;
  const ElementType type = RandomType(random);
  made.args = {.type = type, .hidden = RandomColumns(random), .gated = random() % 2 == 0};
  made.experts = Between(random, 1, 5);
  made.cells = 2 * made.experts;
  made.rows_per_cell = Between(random, 1, 20);
  if (made.args.gated && random() % 2 == 0) made.args.limit = {1.5};
  for (int expert = 0; expert < made.experts; ++expert) made.pairs.push_back({2 * expert + 1, expert});
  made.kept = Held(RandomValues(random, made.rows() * made.args.kept_columns()), type);
  for (size_t i = 0; i < made.kept.size(); ++i) {
    // What exp is taken of goes up to where it is 0 or infinite, now and then.
    const bool is_factor = made.args.gated && i % made.args.kept_columns() < static_cast<size_t>(made.args.hidden);
    made.kept[i] *= !is_factor && random() % 16 == 0 ? 64 : 4;
  }
  made.out_gradient = Held(RandomValues(random, made.rows() * made.args.hidden), type);
  if (random() % 2 == 0) {
    made.up_bias = RandomValues(random, static_cast<size_t>(made.experts) * made.args.hidden);
    if (made.args.gated) made.gate_up_bias = RandomValues(random, made.up_bias.size());
  }
  made.function = FunctionOf(Layer{.expert_matrices = made.args.gated ? 3 : 2, .swiglu_limit = made.args.limit.limit});
  return made;
}

// What is asked of a card: of BF16 1e-2, of FP32 1e-5, of values of about 1.
double ToleranceOf(ElementType type) { return type == ElementType::kFloat32 ? 1e-5 : 1e-2; }

void ExpectNear(float found, double expected, ElementType type) {
  EXPECT_LE(std::abs(found - expected), ToleranceOf(type) * std::max(1.0, std::abs(expected))) << expected;
}

class ActivationKernelsTest : public DeviceTest {
 protected:
  // visit(whether somebody's, row, column, up, gate_up) for every column of "up", with biases where they are added.
  template <typename Visit>
  static void ForEachValue(const ActivationCase& test, bool biased, Visit visit) {
    const int hidden = test.args.hidden;
    for (size_t row = 0; row < test.rows(); ++row) {
      const int cell = static_cast<int>(row) / test.rows_per_cell;
      for (int column = 0; column < hidden; ++column) {
        double up = test.kept[row * test.args.kept_columns() + column];
        double gate_up = test.args.gated ? test.kept[row * test.args.kept_columns() + hidden + column] : 0;
        const size_t bias = static_cast<size_t>(cell / 2) * hidden + column;
        if (biased && !test.up_bias.empty()) up += test.up_bias[bias];
        if (biased && !test.gate_up_bias.empty()) gate_up += test.gate_up_bias[bias];
        visit(cell % 2 == 1, row, column, up, gate_up);
      }
    }
  }
};

TEST_F(ActivationKernelsTest, ForwardIsTheFunctionOfBiasedValues) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ActivationCase test = RandomCase(random);
    const ElementType type = test.args.type;
    const OnDevice<std::byte> kept(ElementBytes(test.kept, type));
    const OnDevice<std::byte> out(Poisoned(test.rows() * test.args.hidden * BytesOf(type)));
    const OnDevice<CellPair> pairs(test.pairs);
    const OnDevice<float> up_bias(test.up_bias), gate_up_bias(test.gate_up_bias);
    test.args.rows = {.data = kept.data(),
                      .cells = {.cells_per_block = test.cells, .rows_per_cell = test.rows_per_cell}};
    test.args.cells = pairs.data();
    test.args.count = test.experts;
    ActivationBiases biases;
    if (!test.up_bias.empty()) biases.up = up_bias.data();
    if (!test.gate_up_bias.empty()) biases.gate_up = gate_up_bias.data();
    ASSERT_EQ(Activate(test.args, biases, out.data(), nullptr), OkStatus());

    const std::vector<float> found = ValuesOf(out.Read(), type), found_kept = ValuesOf(kept.Read(), type);
    ForEachValue(test, /*biased=*/true, [&](bool ours, size_t row, int column, double up, double gate_up) {
      const float value = found[row * test.args.hidden + column];
      const size_t at = row * test.args.kept_columns() + column;
      if (!ours) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_EQ(found_kept[at], test.kept[at]);
        return;
      }
      ExpectNear(value, test.function.value(test.args.limit.Up(up), test.args.limit.GateUp(gate_up)), type);
      ExpectNear(found_kept[at], up, type);
      if (test.args.gated) ExpectNear(found_kept[at + test.args.hidden], gate_up, type);
    });
  }
}

TEST_F(ActivationKernelsTest, GradientIsTheSlopeTimesTheGradient) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ActivationCase test = RandomCase(random);
    const ElementType type = test.args.type;
    const OnDevice<std::byte> kept(ElementBytes(test.kept, type));
    const OnDevice<std::byte> out_gradient(ElementBytes(test.out_gradient, type));
    const OnDevice<std::byte> in_gradient(Poisoned(test.kept.size() * BytesOf(type)));
    const OnDevice<CellPair> pairs(test.pairs);
    test.args.rows = {.data = kept.data(),
                      .cells = {.cells_per_block = test.cells, .rows_per_cell = test.rows_per_cell}};
    test.args.cells = pairs.data();
    test.args.count = test.experts;
    ASSERT_EQ(ActivationGradient(test.args, out_gradient.data(), in_gradient.data(), nullptr), OkStatus());

    const std::vector<float> found = ValuesOf(in_gradient.Read(), type);
    ForEachValue(test, /*biased=*/false, [&](bool ours, size_t row, int column, double up, double gate_up) {
      const size_t at = row * test.args.kept_columns() + column;
      const double gradient = test.out_gradient[row * test.args.hidden + column];
      if (!ours) {
        EXPECT_TRUE(std::isnan(found[at]));
        return;
      }
      const SwiGluLimit& limit = test.args.limit;
      const double limited_up = limit.Up(up), limited_gate_up = limit.GateUp(gate_up);
      ExpectNear(found[at], gradient * limit.UpSlope(up) * test.function.up_slope(limited_up, limited_gate_up), type);
      if (test.args.gated) {
        const double slope = limit.GateUpSlope(gate_up) * test.function.gate_up_slope(limited_up, limited_gate_up);
        ExpectNear(found[at + test.args.hidden], gradient * slope, type);
      }
    });
  }
}

}  // namespace
}  // namespace moeplan::executor::cuda
