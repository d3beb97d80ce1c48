#include "models/measurement/next_sizes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "models/cost/formula.h"
#include "models/fit/cross_validation.h"
#include "models/measurement/needs.h"
#include "models/text.h"

namespace moeplan {
namespace {

std::vector<TimePoint> PointsOf(const Curve& curve) {
  if (const auto* form = std::get_if<LogLog>(&curve)) return form->points;
  if (const auto* form = std::get_if<Interpolated>(&curve)) return form->points;
  return {};
}

// What each inner point misses by when it is left out, as a share of its time.
std::map<double, double> MissesBySize(const Curve& curve) {
  const std::vector<TimePoint> points = PointsOf(curve);
  if (points.size() < 3) return {};
  const FormErrors errors =
      std::holds_alternative<Interpolated>(curve) ? InterpolatedErrors(points) : LogLogErrors(points);
  std::map<double, double> misses;
  for (size_t i = 0; i < errors.left_out.size(); ++i) {
    misses[points[i + 1].size] = std::abs(std::expm1(-errors.left_out[i]));
  }
  return misses;
}

std::vector<double> AllSizes(const Curve& curve, std::span<const double> measured) {
  std::set<double> sizes(measured.begin(), measured.end());
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          for (const auto& point : form.points) sizes.insert(point.size);
        }
      },
      curve);
  return {sizes.begin(), sizes.end()};
}

std::string Percent(double share) {
  const double percent = 100 * share;
  return StrCat(percent < 10 ? std::round(10 * percent) / 10 : std::round(percent), " %");
}

double Doublings(double low, double high) { return std::log2(high / low); }

class Choice {
 public:
  Choice(const CostModel& model, std::span<const double> measured, std::string_view unit)
      : unit_(unit),
        sizes_(AllSizes(model.curve, measured)),
        misses_(MissesBySize(model.curve)),
        usual_(model.fit ? model.fit->relative_error_p50 : 0) {}

  std::vector<NextSize> Run() {
    if (sizes_.empty()) return {};
    for (size_t i = 0; i + 1 < sizes_.size(); ++i) AddGap(sizes_[i], sizes_[i + 1]);
    if (unit_ == "bytes") AddEnds();
    std::ranges::stable_sort(ranked_, std::ranges::greater(), &std::pair<double, NextSize>::first);
    std::vector<NextSize> chosen;
    for (auto& [share, next] : ranked_) {
      if (chosen.size() < kMostNextSizes) chosen.push_back(std::move(next));
    }
    return chosen;
  }

 private:
  double MissAt(double size) const {
    const auto known = misses_.find(size);
    return known == misses_.end() ? usual_ : known->second;
  }

  void Add(double share, double size, std::string why) {
    if (share >= kWorthwhileShare) ranked_.push_back({share, {std::round(size), std::move(why)}});
  }

  void AddGap(double low, double high) {
    if (high < kNarrowGap * low) return;
    const double worse = MissAt(low) >= MissAt(high) ? low : high;
    const double middle = std::round(std::sqrt(low * high));
    if (middle <= low || middle >= high) return;
    const double doublings = Doublings(low, high);
    const std::string gap = StrCat("between ", SizeText(low, unit_), " and ", SizeText(high, unit_));
    const std::string why =
        misses_.contains(worse)
            ? StrCat("Left out, ", SizeText(worse, unit_), " is predicted ", Percent(MissAt(worse)),
                     " off, and nothing was measured ", gap, ".")
            : StrCat("Nothing was measured ", gap, ", a gap of ", std::round(10 * doublings) / 10, " doublings.");
    Add(MissAt(worse) * doublings, middle, why);
  }

  void AddEnds() {
    const double lowest = sizes_.front(), highest = sizes_.back();
    if (lowest > kNarrowGap * kLeastPlannedBytes) {
      Add(std::max(kUnknownShare, MissAt(lowest)) * Doublings(kLeastPlannedBytes, lowest), kLeastPlannedBytes,
          StrCat("Plans ask for as little as ", SizeText(kLeastPlannedBytes, unit_), "; below ",
                 SizeText(lowest, unit_), " nothing was measured and the form alone speaks."));
    }
    if (kMostPlannedBytes > kNarrowGap * highest) {
      Add(std::max(kUnknownShare, MissAt(highest)) * Doublings(highest, kMostPlannedBytes), kMostPlannedBytes,
          StrCat("Plans ask for as much as ", SizeText(kMostPlannedBytes, unit_), "; above ", SizeText(highest, unit_),
                 " nothing was measured and the form alone speaks."));
    }
  }

  const std::string_view unit_;
  const std::vector<double> sizes_;
  const std::map<double, double> misses_;
  const double usual_;
  std::vector<std::pair<double, NextSize>> ranked_;
};

}  // namespace

std::vector<NextSize> NextSizes(const CostModel& model, std::span<const double> measured, std::string_view unit) {
  return Choice(model, measured, unit).Run();
}

}  // namespace moeplan
