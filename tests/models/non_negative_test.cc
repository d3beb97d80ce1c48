#include "models/fit/non_negative.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/test_seed.h"

namespace moeplan {
namespace {

using Values = std::vector<double>;

struct Problem {
  Values gram, moment;

  size_t size() const { return moment.size(); }
  double At(const Values& x) const {
    double value = 0;
    for (size_t i = 0; i < size(); ++i) {
      value -= moment[i] * x[i];
      for (size_t j = 0; j < size(); ++j) value += gram[i * size() + j] * x[i] * x[j] / 2;
    }
    return value;
  }
};

// gram·x = moment over the unknowns of `free`, by elimination; the others 0.
Values Solved(const Problem& problem, const std::vector<size_t>& free) {
  std::vector<Values> rows;
  for (const size_t i : free) {
    Values& row = rows.emplace_back();
    for (const size_t j : free) row.push_back(problem.gram[i * problem.size() + j]);
    row.push_back(problem.moment[i]);
  }
  for (size_t pivot = 0; pivot < rows.size(); ++pivot) {
    for (size_t r = 0; r < rows.size(); ++r) {
      if (r == pivot) continue;
      const double factor = rows[r][pivot] / rows[pivot][pivot];
      for (size_t c = pivot; c < rows[r].size(); ++c) rows[r][c] -= factor * rows[pivot][c];
    }
  }
  Values x(problem.size());
  for (size_t i = 0; i < free.size(); ++i) x[free[i]] = rows[i].back() / rows[i][i];
  return x;
}

// Of the minima over every set of free unknowns, the least that is not negative.
double BruteForce(const Problem& problem) {
  double least = 0;  // All at 0.
  for (size_t mask = 1; mask < size_t{1} << problem.size(); ++mask) {
    std::vector<size_t> free;
    for (size_t i = 0; i < problem.size(); ++i) {
      if (mask >> i & 1) free.push_back(i);
    }
    const Values x = Solved(problem, free);
    if (std::ranges::all_of(x, [](double value) { return value >= 0; })) least = std::min(least, problem.At(x));
  }
  return least;
}

TEST(NonNegativeTest, NoSetOfFreeUnknownsIsBetter) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<double> normal;
  for (int round = 0; round < 4000; ++round) {
    const size_t size = 1 + random() % 6, rows = 1 + random() % 8;
    Problem problem = {Values(size * size), Values(size)};
    for (size_t row = 0; row < rows; ++row) {
      Values terms;
      for (size_t i = 0; i < size; ++i) terms.push_back(std::abs(normal(random)));
      const double value = normal(random) + 1;
      for (size_t i = 0; i < size; ++i) {
        problem.moment[i] += terms[i] * value;
        for (size_t j = 0; j < size; ++j) problem.gram[i * size + j] += terms[i] * terms[j];
      }
    }
    for (size_t i = 0; i < size; ++i) problem.gram[i * size + i] += 1e-4;
    const Values x = NonNegativeMinimum(problem.gram, problem.moment);
    for (const double value : x) ASSERT_GE(value, 0);
    const double least = BruteForce(problem);
    ASSERT_NEAR(problem.At(x), least, 1e-7 * (1 + std::abs(least))) << "round " << round;
  }
}

TEST(NonNegativeTest, TwoUnknownsByHand) {
  // x + y = 1 and x - y = 3, weighed alike: gram 2·I, moment (4, -2). Free they are (2, -1); with y at 0, x = 2.
  EXPECT_EQ(NonNegativeMinimum({2, 0, 0, 2}, {4, -2}), (Values{2, 0}));
  EXPECT_EQ(NonNegativeMinimum({2, 0, 0, 2}, {-4, -2}), (Values{0, 0}));
}

}  // namespace
}  // namespace moeplan
