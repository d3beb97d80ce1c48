#include "cli/reproduce/steps/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>

namespace moeplan::cli {
namespace {

// Rows of steps of 100 tokens a GPU, so that a rate is 100 / time.
class Steps {
 public:
  void Add(double measured_s, double predicted_s, const std::string& question = "",
           std::optional<double> trivial_s = {}) {
    v1::ReproducedStep& row = rows_.emplace_back();
    row.set_measured_s(measured_s);
    row.set_predicted_s(predicted_s);
    row.set_low_s(0.9 * predicted_s);
    row.set_high_s(1.1 * predicted_s);
    row.set_error(predicted_s / measured_s - 1);
    if (trivial_s) row.set_trivial_s(*trivial_s);
    judged_.push_back({&row, question, 100});
  }
  v1::ReproducedStep& Last() { return rows_.back(); }
  v1::ReproducedStepSet Figures() const { return FiguresOf("s", judged_); }
  std::vector<JudgedStep>& judged() { return judged_; }

 private:
  std::deque<v1::ReproducedStep> rows_;
  std::vector<JudgedStep> judged_;
};

TEST(StepFiguresTest, ErrorsByHand) {
  Steps steps;
  steps.Add(10, 11), steps.Add(20, 18), steps.Add(40, 52);
  const v1::ReproducedStepSet figures = steps.Figures();
  EXPECT_EQ(figures.rows(), 3);
  EXPECT_EQ(figures.priced(), 3);
  EXPECT_NEAR(figures.mean_absolute_error(), (0.1 + 0.1 + 0.3) / 3, 1e-12);
  EXPECT_NEAR(figures.median_absolute_error(), 0.1, 1e-12);
  EXPECT_NEAR(figures.worst(), 0.3, 1e-12);
  EXPECT_NEAR(figures.bias(), 0.1, 1e-12);
  // 10 in 9.9 to 12.1; 20 not in 16.2 to 19.8; 40 not in 46.8 to 57.2.
  EXPECT_NEAR(figures.coverage(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(figures.half_width_median(), 0.1, 1e-12);
  EXPECT_FALSE(figures.has_peer_mean_absolute_error());
  EXPECT_FALSE(figures.has_memory_mean_absolute_error());
  EXPECT_FALSE(figures.has_trivial_mean_absolute_error());
}

TEST(StepFiguresTest, ARowWithoutPriceCountsAsARowAlone) {
  Steps steps;
  steps.Add(10, 11);
  v1::ReproducedStep unpriced;
  unpriced.set_measured_s(5);
  steps.judged().push_back({&unpriced, "", 100});
  const v1::ReproducedStepSet figures = steps.Figures();
  EXPECT_EQ(figures.rows(), 2);
  EXPECT_EQ(figures.priced(), 1);
  EXPECT_NEAR(figures.mean_absolute_error(), 0.1, 1e-12);
  EXPECT_FALSE(FiguresOf("s", {steps.judged().back()}).has_bias());
}

TEST(StepFiguresTest, TauCountsPairsThatMeasuredApart) {
  Steps steps;
  // Measured order 1, 2, 3, 3.02: three wrong of the five pairs that are more than 1 % apart, beside the tie.
  steps.Add(1, 2), steps.Add(2, 1), steps.Add(3, 5), steps.Add(3.02, 4);
  EXPECT_NEAR(steps.Figures().kendall_tau(), (4.0 - 1.0) / 5, 1e-12);
  Steps tied;
  tied.Add(1, 2), tied.Add(2, 2), tied.Add(4, 3);
  EXPECT_NEAR(tied.Figures().kendall_tau(), 2 / std::sqrt(3.0 * 2), 1e-12);
}

TEST(StepFiguresTest, RegretIsWhatTheChosenLosesInEachQuestion) {
  Steps steps;
  steps.Add(10, 12, "a", 20), steps.Add(11, 11, "a", 19);  // The slower one is chosen: 10 %.
  steps.Add(10, 9, "b", 9), steps.Add(12, 13, "b", 10);    // The fastest is.
  steps.Add(7, 9, "alone");                                // No choice.
  const v1::ReproducedStepSet figures = steps.Figures();
  EXPECT_NEAR(figures.regret_mean(), 0.05, 1e-12);
  EXPECT_NEAR(figures.winners_named(), 0.5, 1e-12);
  EXPECT_NEAR(figures.trivial_regret_mean(), 0.05, 1e-12);
}

TEST(StepFiguresTest, PeersAndMemoryAreOfRowsThatHaveThem) {
  Steps steps;
  steps.Add(10, 10);
  steps.Last().set_peer_s(8);
  steps.Add(10, 10);
  steps.Last().set_measured_memory_bytes(100);
  steps.Last().set_predicted_memory_bytes(97);
  const v1::ReproducedStepSet figures = steps.Figures();
  EXPECT_NEAR(figures.peer_mean_absolute_error(), 0.2, 1e-12);
  EXPECT_NEAR(figures.memory_mean_absolute_error(), 0.03, 1e-12);
}

}  // namespace
}  // namespace moeplan::cli
