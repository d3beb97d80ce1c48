#include "planner/service/handlers/outlier_memory.h"

#include <algorithm>
#include <iterator>

#include "models/fit/screen.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostCurves = 64;  // Each is compared with.

std::vector<bool> Outliers(const std::vector<KeySamples::Times>& all) {
  std::vector<SizedSpan> counted;
  std::vector<size_t> places;
  for (size_t place = 0; place < all.size(); ++place) {
    if (all[place].retired) continue;
    counted.push_back({all[place].size, all[place].times_s});
    places.push_back(place);
  }
  std::vector<bool> outliers(all.size());
  if (counted.empty()) return outliers;
  const std::vector<int> repeats = OutliersOf(counted);
  for (size_t i = 0; i < counted.size(); ++i) outliers[places[i]] = 2 * repeats[i] > std::ssize(counted[i].times_s);
  return outliers;
}

}  // namespace

std::shared_ptr<const std::vector<bool>> OutlierMemory::Of(const KeySamples& samples) {
  if (auto known = Find(samples.parts)) return known;
  auto outliers = std::make_shared<const std::vector<bool>>(Outliers(samples.times));
  constexpr size_t kMostRepeats = 2'000'000;  // 16 MB.
  size_t repeats = 0;
  for (const KeySamples::Times& one : samples.times) repeats += one.times_s.size();
  if (repeats > kMostRepeats) return outliers;
  const std::scoped_lock lock(mutex_);
  last_.push_front({samples.parts, outliers, repeats});
  repeats_ += repeats;
  while (repeats_ > kMostRepeats || last_.size() > kMostCurves) {
    repeats_ -= last_.back().repeats;
    last_.pop_back();
  }
  return outliers;
}

std::shared_ptr<const std::vector<bool>> OutlierMemory::Find(const std::vector<KeySamples::Part>& parts) {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(last_, parts, &Screened::parts);
  if (known == last_.end()) return nullptr;
  last_.splice(last_.begin(), last_, known);
  return known->outliers;
}

}  // namespace moeplan::service
