#include "cli/reproduce/steps/steps_text.h"

#include <cstdio>
#include <map>
#include <vector>

#include "cli/options.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

// What moves a set's mean error by less is no reason to doubt it.
constexpr double kShownMoves = 0.005;

std::string Share(bool has, double share, int digits = 1) {
  if (!has) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, 100 * share);
  return text;
}

std::string Number(bool has, double number) {
  if (!has) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", number);
  return text;
}

std::string SetsText(const v1::ReproducedSteps& reproduced) {
  std::vector<std::vector<std::string>> table = {{"set", "rows", "mean", "costs", "peer's", "copy's", "worst", "bias",
                                                  "in 90 %", "+-", "tau", "regret", "memory"}};
  for (const v1::ReproducedStepSet& set : reproduced.sets()) {
    const std::string rows = set.priced() == set.rows() ? StrCat(set.rows()) : StrCat(set.priced(), "/", set.rows());
    table.push_back({set.set(), rows, Share(set.has_mean_absolute_error(), set.mean_absolute_error()),
                     Share(set.has_unscaled_mean_absolute_error(), set.unscaled_mean_absolute_error()),
                     Share(set.has_peer_mean_absolute_error(), set.peer_mean_absolute_error()),
                     Share(set.has_trivial_mean_absolute_error(), set.trivial_mean_absolute_error()),
                     Share(set.has_worst(), set.worst()), Share(set.has_bias(), set.bias()),
                     Share(set.has_coverage(), set.coverage(), 0),
                     Share(set.has_half_width_median(), set.half_width_median()),
                     Number(set.has_kendall_tau(), set.kendall_tau()), Share(set.has_regret_mean(), set.regret_mean()),
                     Share(set.has_memory_mean_absolute_error(), set.memory_mean_absolute_error())});
  }
  return Table(table);
}

// Layouts of one question beside each other.
std::string PairsText(const v1::ReproducedSteps& reproduced) {
  std::vector<std::vector<std::string>> table = {{"ratios of two layouts", "pairs", "in 90 %", "+-"}};
  for (const v1::ReproducedStepSet& set : reproduced.sets()) {
    if (set.pairs() == 0) continue;
    table.push_back({set.set(), StrCat(set.pairs()), Share(true, set.pair_coverage(), 0),
                     Share(true, set.pair_half_width_median())});
  }
  return table.size() == 1 ? "" : StrCat("\n", Table(table));
}

std::string RowsText(const v1::ReproducedSteps& reproduced) {
  std::vector<std::vector<std::string>> table = {{"case", "measured", "predicted", "error", "GB", "predicted"}};
  std::map<std::string, int> reasons;
  for (const v1::ReproducedStep& row : reproduced.rows()) {
    if (!row.has_predicted_s()) ++reasons[row.reason()];
    const auto gigabytes = [](bool has, double bytes) { return has ? Number(true, bytes / 1e9) : ""; };
    table.push_back({row.case_(), row.has_measured_s() ? Duration(row.measured_s()) : "",
                     row.has_predicted_s() ? Duration(row.predicted_s()) : "-",
                     row.has_error() ? StrCat(Share(true, row.error()), " %") : "",
                     gigabytes(row.has_measured_memory_bytes(), row.measured_memory_bytes()),
                     gigabytes(row.has_predicted_memory_bytes(), row.predicted_memory_bytes())});
  }
  std::string text = Table(table);
  for (const auto& [reason, rows] : reasons) text += StrCat("  ", rows, " not priced: ", reason, "\n");
  return text;
}

std::string PerturbedText(const v1::ReproducedSteps& reproduced) {
  if (reproduced.perturbed().empty()) return "";
  std::vector<std::vector<std::string>> table = {{"a tenth of", "points", "set"}};
  int fewer = 0;
  for (const v1::PerturbedConstant& constant : reproduced.perturbed()) {
    if (constant.moves() <= kShownMoves) {
      ++fewer;
      continue;
    }
    table.push_back({StrCat(constant.constant(), constant.outside_steps() ? "" : " (has steps in it)"),
                     Share(true, constant.moves(), 2), constant.set()});
  }
  return StrCat("\n", Table(table), "and ", fewer, " constants that move no set by more than ",
                Share(true, kShownMoves), " points; --json has them and all sources\n");
}

}  // namespace

std::string Text(const v1::ReproducedSteps& reproduced) {
  return StrCat(RowsText(reproduced), "\n", SetsText(reproduced),
                "errors in %; costs: without the factor of a release; copy: the nearest row of the same model and "
                "machine\n",
                PairsText(reproduced), PerturbedText(reproduced));
}

}  // namespace moeplan::cli
