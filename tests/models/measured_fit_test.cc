// Fits of real NCCL curves, from the folder that MOEPLAN_MEASURED_DATA names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "models/fit/fit.h"
#include "models/fit/statistics.h"

namespace moeplan {
namespace {

using Points = std::vector<TimePoint>;

// Columns device, nccl, collective, gpus, dtype name a curve; bytes, time_s are its points.
std::map<std::string, Points> ReadCurves(const std::string& path) {
  std::ifstream file(path);
  std::map<std::string, Points> curves;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const size_t time_comma = line.rfind(','), bytes_comma = line.rfind(',', time_comma - 1);
    curves[line.substr(0, bytes_comma)].push_back(
        {std::stod(line.substr(bytes_comma + 1)), std::stod(line.substr(time_comma + 1))});
  }
  for (auto& [name, points] : curves) std::ranges::sort(points, {}, &TimePoint::size);
  return curves;
}

class MeasuredFitTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("MOEPLAN_MEASURED_DATA");
    if (folder == nullptr) GTEST_SKIP() << "MOEPLAN_MEASURED_DATA does not name the folder with nccl_single_node.csv";
    curves_ = ReadCurves(std::string(folder) + "/nccl_single_node.csv");
    ASSERT_FALSE(curves_.empty());
  }

  std::map<std::string, Points> curves_;
};

std::vector<SizedTimes> OnceEach(const Points& points) {
  std::vector<SizedTimes> measurements;
  for (const TimePoint& point : points) measurements.push_back({point.size, {point.time_s}});
  return measurements;
}

struct Split {
  Points fitted, held_out;
};

// Sizes number 2, 4, … are held out.
Split EverySecond(const Points& points) {
  Split split;
  for (size_t i = 0; i < points.size(); ++i) (i % 2 == 0 ? split.fitted : split.held_out).push_back(points[i]);
  return split;
}

TEST_F(MeasuredFitTest, HeldOutSizesArePredictedAsWellAsByLogLogAndLieInTheIntervals) {
  std::vector<double> errors, log_log_errors;
  int covered = 0;
  for (const auto& [name, points] : curves_) {
    ASSERT_EQ(points.size(), 21u) << name;
    const auto [fitted, held_out] = EverySecond(points);
    const CostModel model = FitCurve(OnceEach(fitted));
    for (const TimePoint& point : held_out) {
      const PricedTime price = Price(model, point.size, 1);
      errors.push_back(std::abs(price.time_s / point.time_s - 1));
      log_log_errors.push_back(std::abs(TimeS(LogLog{fitted}, point.size, 1) / point.time_s - 1));
      covered += price.low_s <= point.time_s && point.time_s <= price.high_s;
    }
  }
  const double coverage = static_cast<double>(covered) / static_cast<double>(errors.size());
  std::printf("%zu curves: median error %.4f, log-log %.4f; coverage %.3f\n", curves_.size(), Median(errors),
              Median(log_log_errors), coverage);
  EXPECT_LE(Median(errors), Median(log_log_errors));
  EXPECT_GE(coverage, 0.85);
  EXPECT_LE(coverage, 0.95);
}

TEST_F(MeasuredFitTest, NoGoodMeasurementIsRejected) {
  for (const auto& [name, points] : curves_) {
    EXPECT_EQ(FitCurve(OnceEach(points)).fit->outliers, 0) << name;
    EXPECT_EQ(FitCurve(OnceEach(EverySecond(points).fitted)).fit->outliers, 0) << name;
  }
}

}  // namespace
}  // namespace moeplan
