#include "models/links/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/check.h"
#include "models/cost/plausible.h"
#include "models/fit/non_negative.h"
#include "models/fit/statistics.h"

namespace moeplan {
namespace {

constexpr size_t kUnknowns = 6;
constexpr double kPull = 1e-5;                                           // In squared shares of the time.
constexpr double kHuberDeviations = 1.345, kBisquareDeviations = 4.685;  // 95 % efficient on normal noise.
constexpr double kLeastSpread = 0.02;  // No line fits real curves better; keeps weights on exact ones.
constexpr int kHuberSteps = 8, kBisquareSteps = 6;

// What each unknown is multiplied by: start, alpha of both classes, memory, beta of both classes.
using Terms = std::array<double, kUnknowns>;

Terms TermsOf(const LinkLoad& load, double bytes) {
  return {load.starts,           load.steps[0], load.steps[1], load.local_share * bytes, load.shares[0] * bytes,
          load.shares[1] * bytes};
}

Terms ValuesOf(const LinkCosts& costs) {
  return {costs.start_s,           costs.alpha_s[0],         costs.alpha_s[1],
          costs.memory_s_per_byte, costs.beta_s_per_byte[0], costs.beta_s_per_byte[1]};
}

LinkCosts CostsOf(const Terms& values) {
  return {.start_s = values[0],
          .alpha_s = {values[1], values[2]},
          .beta_s_per_byte = {values[4], values[5]},
          .memory_s_per_byte = values[3]};
}

// The class that is the shorter adds nothing where both run at once.
Terms CountedTerms(Terms terms, const Terms& values, const LinkUse& use) {
  if (use.take_turns) return terms;
  terms[terms[4] * values[4] < terms[5] * values[5] ? 4 : 5] = 0;
  return terms;
}

double Product(const Terms& terms, const Terms& values) {
  double sum = 0;
  for (size_t i = 0; i < kUnknowns; ++i) sum += terms[i] * values[i];
  return sum;
}

// A line through real times is nowhere 0; nor may one be through times that a fit gave up.
constexpr double kLeastTimeS = 1e-12;

double LineOf(const Terms& terms, const Terms& values, const LinkUse& use) {
  return std::max(kLeastTimeS, Product(CountedTerms(terms, values, use), values));
}

struct Row {
  Terms terms;
  double time_s = 0;
  double weight = 0;  // All rows of a curve together: 1 / curves.
};

std::vector<Row> RowsOf(const std::vector<const LoadedCurve*>& curves, const LinkUse& use) {
  std::vector<Row> rows;
  for (const LoadedCurve* curve : curves) {
    MOEPLAN_CHECK(!curve->points.empty());
    const double weight = 1 / static_cast<double>(curves.size() * curve->points.size());
    for (const TimePoint& point : curve->points) {
      rows.push_back({TermsOf(curve->load(use), point.size), point.time_s, weight});
    }
  }
  return rows;
}

class LinkFit {
 public:
  LinkFit(std::vector<Row> rows, const LinkUse& use, const Wires& wires)
      : rows_(std::move(rows)),
        use_(use),
        floors_(ValuesOf({.beta_s_per_byte = {wires.BetaFloor(0), wires.BetaFloor(1)}})) {
    for (const Row& row : rows_) {
      for (size_t i = 0; i < kUnknowns; ++i) scales_[i] += row.weight * std::pow(row.terms[i] / row.time_s, 2);
      scale_times_.push_back(row.time_s);
      trust_.push_back(1);
    }
    for (double& scale : scales_) scale = std::sqrt(scale);
  }

  Terms Run() {
    Solve({.take_turns = true});
    for (int i = 0; i < kHuberSteps + kBisquareSteps; ++i) {
      Reweigh(/*redescending=*/i >= kHuberSteps);
      Solve(use_);
    }
    return values_;
  }

 private:
  // Least squares of (time - line) / scale_time, in unknowns that are root mean square shares of the time: what is
  // above their floors, which may not be negative.
  void Solve(const LinkUse& use) {
    std::vector<double> gram(kUnknowns * kUnknowns), moment(kUnknowns);
    for (size_t r = 0; r < rows_.size(); ++r) {
      Terms terms = CountedTerms(rows_[r].terms, values_, use);
      for (size_t i = 0; i < kUnknowns; ++i) terms[i] = scales_[i] > 0 ? terms[i] / scales_[i] / scale_times_[r] : 0;
      const double weight = rows_[r].weight * trust_[r];
      for (size_t i = 0; i < kUnknowns; ++i) {
        moment[i] += weight * terms[i] * rows_[r].time_s / scale_times_[r];
        for (size_t j = 0; j < kUnknowns; ++j) gram[i * kUnknowns + j] += weight * terms[i] * terms[j];
      }
    }
    for (size_t i = 0; i < kUnknowns; ++i) gram[i * kUnknowns + i] += kPull;
    for (size_t i = 0; i < kUnknowns; ++i) {
      for (size_t j = 0; j < kUnknowns; ++j) moment[i] -= gram[i * kUnknowns + j] * floors_[j] * scales_[j];
    }
    const std::vector<double> shares = NonNegativeMinimum(gram, moment);
    for (size_t i = 0; i < kUnknowns; ++i) values_[i] = floors_[i] + (scales_[i] > 0 ? shares[i] / scales_[i] : 0);
  }

  void Reweigh(bool redescending) {
    std::vector<double> residuals, magnitudes;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const double line_s = LineOf(rows_[r].terms, values_, use_);
      residuals.push_back(std::log(rows_[r].time_s / line_s));
      magnitudes.push_back(std::abs(residuals.back()));
      // Between both: neither a slow nor a fast measurement pulls harder than the other.
      scale_times_[r] = std::sqrt(rows_[r].time_s * line_s);
    }
    const double spread = std::max(kLeastSpread, 1.4826 * Median(magnitudes));
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (redescending) {
        const double share = magnitudes[r] / spread / kBisquareDeviations;
        trust_[r] = share >= 1 ? 0 : std::pow(1 - share * share, 2);
      } else {
        trust_[r] = std::min(1.0, kHuberDeviations * spread / std::max(magnitudes[r], kLeastSpread * 1e-3));
      }
    }
  }

  const std::vector<Row> rows_;
  const LinkUse use_;
  const Terms floors_;
  Terms scales_ = {};
  Terms values_ = {};
  std::vector<double> scale_times_, trust_;
};

double Misfit(const std::vector<const LoadedCurve*>& curves, const LinkLine& line) {
  double sum = 0;
  for (const LoadedCurve* curve : curves) {
    double of_curve = 0;
    for (const TimePoint& point : curve->points) {
      of_curve += std::abs(std::log(point.time_s / TimeS(line, curve->load(line.use), point.size)));
    }
    sum += of_curve / static_cast<double>(curve->points.size());
  }
  return sum / static_cast<double>(curves.size());
}

}  // namespace

double TimeS(const LinkLine& line, const LinkLoad& load, double bytes) {
  return load == LinkLoad() ? 0 : LineOf(TermsOf(load, bytes), ValuesOf(line.costs), line.use);
}

Wires WiresOf(const Cluster& cluster) {
  Cluster known = cluster;
  ForgetImpossible(known);
  return {.bytes_per_s = {known.node_link_bytes_per_s, known.network_bytes_per_s}};
}

LinkLine FitLinkLine(const std::vector<const LoadedCurve*>& curves, const LinkUse& use, const Wires& wires) {
  MOEPLAN_CHECK(!curves.empty());
  return {use, CostsOf(LinkFit(RowsOf(curves, use), use, wires).Run())};
}

LinkLine FitLinkLine(const std::vector<const LoadedCurve*>& curves, const Wires& wires) {
  LinkLine best;
  double bar = std::numeric_limits<double>::infinity();
  for (const bool take_turns : {true, false}) {
    for (const GatherRoute route : kGatherRoutes) {
      const LinkLine line = FitLinkLine(curves, {route, take_turns}, wires);
      const double misfit = Misfit(curves, line);
      if (misfit >= bar) continue;
      best = line;
      bar = kClearlyLess * misfit;
    }
  }
  return best;
}

}  // namespace moeplan
