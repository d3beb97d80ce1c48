#include "planner/drift/remeasure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "models/fit/fit.h"
#include "models/fit/statistics.h"
#include "models/measurement/needs.h"

namespace moeplan::planner {
namespace {

constexpr size_t kMostSizes = 8;

template <typename Points>
std::vector<double> SizesOf(const Points& points) {
  std::vector<double> sizes;
  for (const auto& point : points) sizes.push_back(point.size);
  return sizes;
}

// None of a line.
std::vector<double> PointsOf(const Curve& curve) {
  if (const auto* log_log = std::get_if<LogLog>(&curve)) return SizesOf(log_log->points);
  if (const auto* interpolated = std::get_if<Interpolated>(&curve)) return SizesOf(interpolated->points);
  if (const auto* efficiency = std::get_if<Efficiency>(&curve)) return SizesOf(efficiency->points);
  return {};
}

// Both ends and, evenly by place, up to kMostSizes in all.
std::vector<double> Thinned(const std::vector<double>& sizes) {
  if (sizes.size() <= kMostSizes) return sizes;
  std::vector<double> thinned;
  for (size_t i = 0; i < kMostSizes; ++i) thinned.push_back(sizes[i * (sizes.size() - 1) / (kMostSizes - 1)]);
  return thinned;
}

// The points of a curve, even if it has one alone: elsewhere it was never measured. A line has none, and is measured at
// small, middling and large sizes.
std::vector<double> SizesToMeasure(const CostKey& key, const CostModel& model, const Cluster& cluster) {
  std::vector<double> sizes = PointsOf(model.curve);
  if (!sizes.empty()) return Thinned(sizes);
  const SizeRange usual = PlannedSizes(key, cluster);
  const double low = model.size_low > 0 ? model.size_low : usual.low;
  const double high =
      std::isfinite(model.size_high) && model.size_high > low ? model.size_high : std::max(low, usual.high);
  constexpr int kSizes = 5;
  for (int i = 0; i < kSizes; ++i) {
    const double size = std::round(low * std::pow(high / low, i / (kSizes - 1.0)));
    if (sizes.empty() || size > sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

// Each entry of a profile, of both kinds.
template <typename Visit>
void ForEachEntry(const Profile& profile, Visit visit) {
  for (const CollectiveModel& entry : profile.collectives) visit(CostKey(entry.key), entry.model);
  for (const KernelModel& entry : profile.kernels) visit(CostKey(entry.key), entry.model);
}

// How many times longer than predicted; absent where not all sizes were measured.
std::optional<double> RatioOf(const CostKey& key, const CostModel& model, const Cluster& cluster,
                              const std::map<double, std::vector<double>>& times_by_size) {
  for (const double size : SizesToMeasure(key, model, cluster)) {
    if (!times_by_size.contains(size)) return std::nullopt;
  }
  std::vector<double> logs;
  for (const auto& [size, times_s] : times_by_size) {
    logs.push_back(std::log(Median(times_s) / TimeS(model.curve, size, BusFactorOf(key))));
  }
  return std::exp(Median(logs));
}

// The models of `from` in place of those of `to` with the same key.
template <typename Entry>
void Replace(std::vector<Entry>& to, const std::vector<Entry>& from) {
  for (const Entry& renewed : from) {
    const auto found = std::ranges::find(to, renewed.key, &Entry::key);
    if (found != to.end()) found->model = renewed.model;
  }
}

}  // namespace

std::string_view Name(Resource resource) {
  switch (resource) {
    case Resource::kInterNode: return "INTER_NODE";
    case Resource::kIntraNode: return "INTRA_NODE";
    case Resource::kCompute: return "COMPUTE";
  }
  return "";
}

Resource ResourceOf(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  if (collective == nullptr) return Resource::kCompute;
  return collective->group.ranks_per_node < collective->group.size ? Resource::kInterNode : Resource::kIntraNode;
}

std::vector<Sample> OperationsOf(const Profile& profile, const CostKey& drifted, const Workload& workload,
                                 size_t most) {
  std::array<std::vector<Sample>, 3> by_urgency;
  ForEachEntry(profile, [&](const CostKey& key, const CostModel& model) {
    if (ResourceOf(key) != ResourceOf(drifted)) return;
    const auto* kernel = std::get_if<KernelKey>(&key);
    if (kernel != nullptr && !IsKernelOf(*kernel, workload)) return;
    const int urgency = key == drifted ? 0 : ContentionOf(key) == Contention::kNone ? 1 : 2;
    for (const double size : SizesToMeasure(key, model, profile.cluster)) {
      by_urgency.at(urgency).push_back({.key = key, .size = size});
    }
  });
  std::vector<Sample> operations;
  for (std::vector<Sample>& some : by_urgency) std::ranges::move(some, std::back_inserter(operations));
  if (operations.size() > most) operations.resize(most);
  return operations;
}

StatusOr<Remeasured> Renew(const Profile& before, const std::vector<Sample>& samples) {
  std::map<CostKey, std::map<double, std::vector<double>>> times;
  for (const Sample& sample : samples) {
    std::vector<double>& all = times[sample.key][sample.size];
    all.insert(all.end(), sample.times_s.begin(), sample.times_s.end());
  }
  Remeasured renewed = {.profile = before};
  std::set<CostKey> moved;
  ForEachEntry(before, [&](const CostKey& key, const CostModel& model) {
    const auto found = times.find(key);
    if (found == times.end()) return;
    const std::optional<double> ratio = RatioOf(key, model, before.cluster, found->second);
    if (!ratio) return;
    renewed.judged.push_back(key);
    if (std::max(*ratio, 1 / *ratio) < kMovedRatio) return;
    renewed.moved.push_back({key, *ratio});
    moved.insert(key);
  });
  if (moved.empty()) return renewed;
  SampleSet of_moved = {.name = before.name, .cluster = before.cluster};
  std::ranges::copy_if(samples, std::back_inserter(of_moved.samples),
                       [&](const Sample& sample) { return moved.contains(sample.key); });
  ASSIGN_OR_RETURN(const Profile fitted, FitProfile(of_moved));
  Replace(renewed.profile.collectives, fitted.collectives);
  Replace(renewed.profile.kernels, fitted.kernels);
  return renewed;
}

}  // namespace moeplan::planner
