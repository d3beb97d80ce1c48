// Biases on the rows of experts, and their gradients, against double precision; weights as elements.
#include "executor/cuda/bias_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "executor/cuda/cell_groups.h"
#include "executor/cuda/row_kernels.h"
#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

// Experts with a few cells each and some that are nobody's; full cells, or as many rows as counts say, packed. Rows lie
// apart, as the halves of SwiGLU's do.
struct BiasCase {
  ElementType type = ElementType::kFloat32;
  int columns = 0, stride = 0, experts = 0, rows_per_cell = 0;
  std::vector<int> owner;  // Of each cell; -1: nobody.
  std::vector<int32_t> counts;
  std::vector<CellPair> pairs;
  std::vector<float> values, biases;

  int cells() const { return static_cast<int>(owner.size()); }
  int RowsOf(int cell) const { return counts.empty() ? rows_per_cell : counts[cell]; }
  // visit(expert or -1, row)
  template <typename Visit>
  void ForEachRow(Visit visit) const {
    int row = 0;
    for (int cell = 0; cell < cells(); ++cell) {
      for (int i = 0; i < RowsOf(cell); ++i) visit(owner[cell], row++);
    }
  }
};

BiasCase RandomCase(std::mt19937_64& random) {
  BiasCase made;
  made.type = RandomType(random);
  made.columns = RandomColumns(random);
  made.stride = made.columns + Between(random, 0, 9);
  made.experts = Between(random, 1, 4);
  made.rows_per_cell = Between(random, 1, 40);
  const int cells = made.experts * Between(random, 1, 4);
  for (int cell = 0; cell < cells; ++cell) {
    made.owner.push_back(random() % 5 == 0 ? -1 : Between(random, 0, made.experts - 1));
  }
  for (int expert = 0; expert < made.experts; ++expert) {
    for (int cell = 0; cell < cells; ++cell) {
      if (made.owner[cell] == expert) made.pairs.push_back({cell, expert});
    }
  }
  if (random() % 2 == 0) {
    for (int cell = 0; cell < cells; ++cell) made.counts.push_back(Between(random, 0, made.rows_per_cell));
  }
  made.values = RandomValues(random, static_cast<size_t>(cells) * made.rows_per_cell * made.stride);
  made.values = ValuesOf(ElementBytes(made.values, made.type), made.type);
  made.biases = RandomValues(random, static_cast<size_t>(made.experts) * made.columns);
  return made;
}

// The case on the device.
class BiasedRows {
 public:
  explicit BiasedRows(const BiasCase& test)
      : data_(ElementBytes(test.values, test.type)),
        counts_(test.counts),
        first_rows_(PoisonedValues<int64_t>(test.cells() + 1)),
        pairs_(test.pairs),
        first_pairs_(FirstPairsOf(test.pairs)) {
    CellLayout cells = {.cells_per_block = test.cells(), .rows_per_cell = test.rows_per_cell};
    if (!test.counts.empty()) {
      cells.counts = counts_.data();
      EXPECT_EQ(FindFirstRows(cells, first_rows_.data(), nullptr), OkStatus());
    }
    args = {.type = test.type,
            .columns = test.columns,
            .stride = test.stride,
            .rows = {.data = data_.data(), .cells = cells, .first_rows = first_rows_.data()},
            .experts = {.pairs = pairs_.data(),
                        .first_pairs = first_pairs_.data(),
                        .groups = static_cast<int>(FirstPairsOf(test.pairs).size()) - 1},
            .count = static_cast<int>(test.pairs.size())};
  }

  std::vector<float> Read() const { return ValuesOf(data_.Read(), args.type); }

  BiasRows args;

 private:
  OnDevice<std::byte> data_;
  OnDevice<int32_t> counts_;
  OnDevice<int64_t> first_rows_;
  OnDevice<CellPair> pairs_;
  OnDevice<int32_t> first_pairs_;
};

double ToleranceOf(ElementType type) { return type == ElementType::kFloat32 ? 1e-6 : 1e-2; }

class BiasKernelsTest : public DeviceTest {};

TEST_F(BiasKernelsTest, EveryRowOfAnExpertGetsItsBiasAndNoOther) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    const BiasCase test = RandomCase(random);
    const bool overwrites = random() % 3 == 0, has_bias = random() % 4 != 0;
    const BiasedRows rows(test);
    const OnDevice<float> biases(test.biases);
    ASSERT_EQ(AddBias(rows.args, has_bias ? biases.data() : nullptr, overwrites, nullptr), OkStatus());
    const std::vector<float> found = rows.Read();
    std::vector<float> expected = test.values;
    test.ForEachRow([&](int expert, int row) {
      for (int column = 0; column < test.columns && expert >= 0; ++column) {
        const size_t at = static_cast<size_t>(row) * test.stride + column;
        const double bias = has_bias ? test.biases[expert * test.columns + column] : 0;
        const double value = (overwrites ? 0 : test.values[at]) + bias;
        EXPECT_NEAR(found[at], value, ToleranceOf(test.type) * (1 + std::abs(value))) << "case " << i << " row " << row;
        expected[at] = found[at];
      }
    });
    EXPECT_EQ(found, expected) << "what is nobody's, case " << i;
  }
}

TEST_F(BiasKernelsTest, GradientsAreScaledSumsOverTheRowsOfAnExpert) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    const BiasCase test = RandomCase(random);
    const float scale = random() % 2 == 0 ? 1 : 0.5F;
    const BiasedRows rows(test);
    const OnDevice<float> gradients(test.biases);
    ASSERT_EQ(AddBiasGradient(rows.args, scale, gradients.data(), nullptr), OkStatus());
    std::vector<double> expected(test.biases.begin(), test.biases.end());
    test.ForEachRow([&](int expert, int row) {
      for (int column = 0; column < test.columns && expert >= 0; ++column) {
        expected[expert * test.columns + column] +=
            scale * test.values[static_cast<size_t>(row) * test.stride + column];
      }
    });
    const std::vector<float> found = gradients.Read();
    // Of sums of up to 640 values below 2.
    for (size_t at = 0; at < found.size(); ++at) EXPECT_NEAR(found[at], expected[at], 1e-3) << "case " << i;
  }
}

TEST_F(BiasKernelsTest, WeightsAreRoundedAsOnTheHost) {
  std::mt19937_64 random(TestSeed());
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBfloat16}) {
    const std::vector<float> values = RandomValues(random, 1000);
    const OnDevice<float> from(values);
    const OnDevice<std::byte> to(Poisoned(values.size() * BytesOf(type)));
    ASSERT_EQ(StoreElements(type, from.data(), static_cast<int64_t>(values.size()), to.data(), nullptr), OkStatus());
    EXPECT_EQ(to.Read(), ElementBytes(values, type));
  }
}

}  // namespace
}  // namespace moeplan::executor::cuda
