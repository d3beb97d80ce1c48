#include "models/fit/non_negative.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>

#include "models/check.h"

namespace moeplan {
namespace {

// Rounding of the steepest slope at a minimum, as a share of the largest moment.
constexpr double kFlat = 1e-12;

// Of the free unknowns alone, the others at 0.
Eigen::VectorXd MinimumOf(const Eigen::MatrixXd& gram, const Eigen::VectorXd& moment, const std::vector<int>& free) {
  Eigen::VectorXd x = Eigen::VectorXd::Zero(moment.size());
  const Eigen::MatrixXd part = gram(free, free);
  const Eigen::VectorXd right = moment(free);
  const Eigen::VectorXd solved = part.ldlt().solve(right);
  x(free) = solved;
  return x;
}

}  // namespace

std::vector<double> NonNegativeMinimum(const std::vector<double>& gram, const std::vector<double>& moment) {
  const auto count = static_cast<Eigen::Index>(moment.size());
  MOEPLAN_CHECK(gram.size() == moment.size() * moment.size());
  const Eigen::MatrixXd g = Eigen::Map<const Eigen::MatrixXd>(gram.data(), count, count);
  const Eigen::VectorXd m = Eigen::Map<const Eigen::VectorXd>(moment.data(), count);
  const double flat = kFlat * m.cwiseAbs().maxCoeff();
  Eigen::VectorXd x = Eigen::VectorXd::Zero(count);
  std::vector<int> free;
  const auto is_free = [&](int i) { return std::ranges::find(free, i) != free.end(); };
  // Every round ends at a lower minimum of other free unknowns; the limit is for rounding alone.
  for (Eigen::Index round = 0; round < 3 * count; ++round) {
    const Eigen::VectorXd slope = m - g * x;
    int steepest = -1;
    for (int i = 0; i < count; ++i) {
      if (!is_free(i) && slope(i) > flat && (steepest < 0 || slope(i) > slope(steepest))) steepest = i;
    }
    if (steepest < 0) break;
    free.push_back(steepest);
    while (!free.empty()) {
      const Eigen::VectorXd target = MinimumOf(g, m, free);
      double step = 1;
      int blocking = -1;
      for (const int i : free) {
        if (target(i) > 0 || x(i) / (x(i) - target(i)) >= step) continue;
        step = x(i) / (x(i) - target(i));
        blocking = i;
      }
      x += step * (target - x);
      if (blocking < 0) break;
      x(blocking) = 0;
      std::erase(free, blocking);
    }
  }
  return {x.data(), x.data() + count};
}

}  // namespace moeplan
