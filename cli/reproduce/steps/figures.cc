#include "cli/reproduce/steps/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "models/fit/statistics.h"

namespace moeplan::cli {
namespace {

double MeanOf(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Lists the value of each row that has one.
template <typename Value>
std::vector<double> Errors(const std::vector<JudgedStep>& steps, Value value) {
  std::vector<double> errors;
  for (const JudgedStep& step : steps) {
    if (const std::optional<double> error = value(*step.row)) errors.push_back(*error);
  }
  return errors;
}

void SetMean(const std::vector<double>& values, const std::function<void(double)>& set) {
  if (!values.empty()) set(MeanOf(values));
}

// How fast a time makes a step.
double Rate(const JudgedStep& step, double time_s) { return step.tokens_per_gpu / time_s; }

std::optional<double> KendallTau(const std::vector<JudgedStep>& steps) {
  int concordant = 0, discordant = 0, tied = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double measured =
          std::log(Rate(steps[i], steps[i].row->measured_s()) / Rate(steps[j], steps[j].row->measured_s()));
      if (std::abs(measured) <= std::log1p(kCloseSteps)) continue;
      const double predicted =
          std::log(Rate(steps[i], steps[i].row->predicted_s()) / Rate(steps[j], steps[j].row->predicted_s()));
      if (predicted == 0) {
        ++tied;
      } else {
        ++(measured * predicted > 0 ? concordant : discordant);
      }
    }
  }
  // Measured pairs are never tied, so tau-b's denominator is sqrt(all · (all - tied)).
  const double all = concordant + discordant + tied, ordered = concordant + discordant;
  if (ordered == 0) return std::nullopt;
  return (concordant - discordant) / std::sqrt(all * ordered);
}

// Lists what choosing the fastest by `predicted_s` loses in each question with several rows. Rows without it are not
// chosen from; questions with fewer than two that have it are left out.
template <typename Predicted>
std::vector<double> Regrets(const std::vector<JudgedStep>& steps, Predicted predicted_s) {
  std::map<std::string, std::vector<const JudgedStep*>> questions;
  for (const JudgedStep& step : steps) {
    if (predicted_s(*step.row)) questions[step.question].push_back(&step);
  }
  std::vector<double> regrets;
  for (const auto& [question, rows] : questions) {
    if (rows.size() < 2) continue;
    const auto predicted = [&](const JudgedStep* step) { return Rate(*step, *predicted_s(*step->row)); };
    const auto measured = [](const JudgedStep* step) { return Rate(*step, step->row->measured_s()); };
    const JudgedStep* chosen = *std::ranges::max_element(rows, {}, predicted);
    const JudgedStep* fastest = *std::ranges::max_element(rows, {}, measured);
    regrets.push_back(measured(fastest) / measured(chosen) - 1);
  }
  return regrets;
}

std::optional<double> PredictedOf(const v1::ReproducedStep& row) { return row.predicted_s(); }
std::optional<double> TrivialOf(const v1::ReproducedStep& row) {
  return row.has_trivial_s() ? std::optional(row.trivial_s()) : std::nullopt;
}
std::optional<double> UnscaledOf(const v1::ReproducedStep& row) {
  return row.has_unscaled_s() ? std::optional(row.unscaled_s()) : std::nullopt;
}
std::optional<double> PeerOf(const v1::ReproducedStep& row) {
  return row.has_peer_s() ? std::optional(row.peer_s()) : std::nullopt;
}

}  // namespace

v1::ReproducedStepSet FiguresOf(const std::string& set, const std::vector<JudgedStep>& steps) {
  v1::ReproducedStepSet figures;
  figures.set_set(set);
  figures.set_rows(static_cast<int>(steps.size()));
  std::vector<JudgedStep> priced;
  for (const JudgedStep& step : steps) {
    if (step.row->has_error()) priced.push_back(step);
  }
  figures.set_priced(static_cast<int>(priced.size()));
  if (priced.empty()) return figures;
  const auto absolute = [](auto predicted) {
    return [predicted](const v1::ReproducedStep& row) -> std::optional<double> {
      const std::optional<double> time_s = predicted(row);
      return time_s ? std::optional(std::abs(*time_s / row.measured_s() - 1)) : std::nullopt;
    };
  };
  const std::vector<double> errors = Errors(priced, absolute(PredictedOf));
  figures.set_mean_absolute_error(MeanOf(errors));
  figures.set_median_absolute_error(Median(errors));
  figures.set_worst(std::ranges::max(errors));
  double bias = 0, covered = 0;
  std::vector<double> half_widths;
  for (const JudgedStep& step : priced) {
    const v1::ReproducedStep& row = *step.row;
    bias += row.error();
    covered += row.measured_s() >= row.low_s() && row.measured_s() <= row.high_s() ? 1 : 0;
    half_widths.push_back((row.high_s() - row.low_s()) / (2 * row.predicted_s()));
  }
  figures.set_bias(bias / static_cast<double>(priced.size()));
  figures.set_coverage(covered / static_cast<double>(priced.size()));
  figures.set_half_width_median(Median(half_widths));
  if (const auto tau = KendallTau(priced)) figures.set_kendall_tau(*tau);
  const std::vector<double> regrets = Regrets(priced, PredictedOf);
  if (!regrets.empty()) {
    figures.set_regret_mean(MeanOf(regrets));
    const auto named = std::ranges::count_if(regrets, [](double regret) { return regret <= kCloseSteps; });
    figures.set_winners_named(static_cast<double>(named) / static_cast<double>(regrets.size()));
  }
  SetMean(Errors(priced, absolute(TrivialOf)), [&](double mean) { figures.set_trivial_mean_absolute_error(mean); });
  SetMean(Regrets(priced, TrivialOf), [&](double mean) { figures.set_trivial_regret_mean(mean); });
  SetMean(Errors(priced, absolute(UnscaledOf)), [&](double mean) { figures.set_unscaled_mean_absolute_error(mean); });
  SetMean(Errors(priced, absolute(PeerOf)), [&](double mean) { figures.set_peer_mean_absolute_error(mean); });
  const auto memory = [](const v1::ReproducedStep& row) -> std::optional<double> {
    if (!row.has_predicted_memory_bytes()) return std::nullopt;
    return std::abs(row.predicted_memory_bytes() / row.measured_memory_bytes() - 1);
  };
  SetMean(Errors(priced, memory), [&](double mean) { figures.set_memory_mean_absolute_error(mean); });
  return figures;
}

}  // namespace moeplan::cli
