#include "planner/service/handlers/outlier_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/cost/samples.h"
#include "models/fit/screen.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostCurves = 64;  // Each is compared with.

OutlierMemory::Outliers OutliersAmong(const std::vector<KeySamples::Times>& all) {
  std::vector<SizedSpan> counted;
  std::vector<size_t> places, impossible;
  for (size_t place = 0; place < all.size(); ++place) {
    if (all[place].retired) continue;
    if (!IsPossible(all[place].size, all[place].times_s)) {
      impossible.push_back(place);
      continue;
    }
    counted.push_back({all[place].size, all[place].times_s});
    places.push_back(place);
  }
  OutlierMemory::Outliers outliers(all.size());
  // Fits leave impossible samples out, so every repeat of one is an outlier.
  for (const size_t place : impossible) {
    outliers[place].resize(all[place].times_s.size());
    std::iota(outliers[place].begin(), outliers[place].end(), 0);
  }
  if (counted.empty()) return outliers;
  OutlierMemory::Outliers of_counted = OutliersOf(counted);
  for (size_t i = 0; i < places.size(); ++i) outliers[places[i]] = std::move(of_counted[i]);
  return outliers;
}

// With what the parts hold of each sample and batch (db/known_batches.h).
size_t BytesOf(const KeySamples& samples, const OutlierMemory::Outliers& outliers) {
  constexpr size_t kOfSample = sizeof(std::vector<int>) + 40, kOfPart = 200;
  size_t bytes = samples.times.size() * kOfSample + samples.parts.size() * kOfPart;
  for (const KeySamples::Times& one : samples.times) bytes += one.times_s.size_bytes();
  for (const std::vector<int>& of_one : outliers) bytes += of_one.size() * sizeof(int);
  return bytes;
}

}  // namespace

std::shared_ptr<const OutlierMemory::Outliers> OutlierMemory::Of(const KeySamples& samples) {
  if (auto known = Find(samples.parts)) return known;
  auto outliers = std::make_shared<const Outliers>(OutliersAmong(samples.times));
  constexpr size_t kMostBytes = 20'000'000;
  const size_t bytes = BytesOf(samples, *outliers);
  if (bytes > kMostBytes) return outliers;
  const std::scoped_lock lock(mutex_);
  last_.push_front({samples.parts, outliers, bytes});
  bytes_ += bytes;
  while (bytes_ > kMostBytes || last_.size() > kMostCurves) {
    bytes_ -= last_.back().bytes;
    last_.pop_back();
  }
  return outliers;
}

std::shared_ptr<const OutlierMemory::Outliers> OutlierMemory::Find(const std::vector<KeySamples::Part>& parts) {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(last_, parts, &Known::parts);
  if (known == last_.end()) return nullptr;
  last_.splice(last_.begin(), last_, known);
  return known->outliers;
}

}  // namespace moeplan::service
