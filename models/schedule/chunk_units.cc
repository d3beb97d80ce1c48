#include "models/schedule/chunk_units.h"

#include <cmath>
#include <numeric>

#include "models/text.h"

namespace moeplan {
namespace {

// Of shares that were written with six digits.
constexpr double kTolerance = 1e-4;

bool AreUnitsOf(int units, const std::vector<double>& shares) {
  for (const double share : shares) {
    const double taken = share * units;
    if (taken < 1 - kTolerance || std::abs(taken - std::round(taken)) > kTolerance) return false;
  }
  return true;
}

}  // namespace

StatusOr<std::vector<int>> UnitsOf(const std::vector<double>& shares) {
  if (shares.size() > kMostUnequalChunks) {
    return InvalidInput(StrCat("found ", shares.size(), " shares, expected at most ", kMostUnequalChunks));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (std::abs(sum - 1) > kTolerance)
    return InvalidInput(StrCat("found a sum of ", std::round(sum * 1e6) / 1e6, ", expected 1"));
  for (int units = static_cast<int>(shares.size()); units <= kMostChunkUnits; ++units) {
    if (!AreUnitsOf(units, shares)) continue;
    std::vector<int> taken;
    for (const double share : shares) taken.push_back(static_cast<int>(std::lround(share * units)));
    return taken;
  }
  return InvalidInput(
      StrCat("expected multiples of 1/n for one n up to ", kMostChunkUnits, ", such as 0.25, 0.5 and 0.25"));
}

std::string RatioOf(const std::vector<double>& shares) {
  const StatusOr<std::vector<int>> units = UnitsOf(shares);
  std::string text;
  if (!units.ok()) return text;
  for (const int taken : *units) text += StrCat(text.empty() ? "" : ":", taken);
  return text;
}

std::vector<double> SharesOf(const std::vector<int>& units) {
  const double all = std::accumulate(units.begin(), units.end(), 0);
  std::vector<double> shares;
  for (const int taken : units) shares.push_back(taken / all);
  return shares;
}

}  // namespace moeplan
