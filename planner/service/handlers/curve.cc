#include "planner/service/handlers/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/formula.h"
#include "models/cost/operation.h"
#include "models/fit/statistics.h"
#include "models/measurement/needs.h"
#include "models/measurement/next_sizes.h"
#include "models/text.h"
#include "models/thinned.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/outlier_memory.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/profile.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr int kUsualSamples = 2000, kMostSamples = 10000;
constexpr int kDrawnPoints = 96;

StatusOr<size_t> MostSamplesOf(const v1::GetCurveRequest& request) {
  if (request.max_samples() == 0) return kUsualSamples;
  if (request.max_samples() < 1 || request.max_samples() > kMostSamples) {
    return moeplan::error::Mismatch("maxSamples", StrCat(request.max_samples()), StrCat("1 to ", kMostSamples));
  }
  return static_cast<size_t>(request.max_samples());
}

// One entry of a profile; borrowed.
struct Cost {
  CostKey key;
  const CostModel* model = nullptr;

  double bus_factor() const {
    const auto* collective = std::get_if<CollectiveKey>(&key);
    return collective ? BusFactor(collective->collective, collective->group.size) : 1;
  }
};

std::vector<Cost> CostsOf(const Profile& profile) {
  std::vector<Cost> costs;
  for (const CollectiveModel& entry : profile.collectives) costs.push_back({entry.key, &entry.model});
  for (const KernelModel& entry : profile.kernels) costs.push_back({entry.key, &entry.model});
  return costs;
}

// As it is named, or as messages do that leave out what it does not depend on.
StatusOr<Cost> CostNamed(const std::string& name, const std::vector<Cost>& costs, const Profile& profile) {
  if (name.empty() && !costs.empty()) return costs.front();
  const auto exact = std::ranges::find(costs, name, [](const Cost& cost) { return Describe(cost.key); });
  if (exact != costs.end()) return *exact;
  const auto close = std::ranges::find(costs, name, [](const Cost& cost) { return Describe(Essential(cost.key)); });
  if (close != costs.end()) return *close;
  return error::NoCost(profile.name, profile.version, name);
}

double RateOf(double size, double bus_factor, double time_s) { return time_s > 0 ? size * bus_factor / time_s : 0; }

// ---- The curve.

std::vector<double> OwnSizes(const CostModel& model) {
  std::vector<double> sizes;
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          for (const auto& point : form.points) sizes.push_back(point.size);
        }
      },
      model.curve);
  if (model.fit) sizes.insert(sizes.end(), model.fit->breakpoints.begin(), model.fit->breakpoints.end());
  return sizes;
}

struct SizeRange {
  double low = std::numeric_limits<double>::infinity(), high = 0;

  void Take(double size) {
    low = std::min(low, size);
    high = std::max(high, size);
  }
};

// Of the model, its points and all measured sizes; what plans usually ask where nothing says more.
SizeRange DrawnRange(const Cost& cost, const std::vector<double>& own, const std::vector<double>& measured) {
  SizeRange range;
  for (const double size : own) range.Take(size);
  for (const double size : measured) range.Take(size);
  if (cost.model->size_low > 0) range.Take(cost.model->size_low);
  if (std::isfinite(cost.model->size_high)) range.Take(cost.model->size_high);
  if (range.low <= range.high) return range;
  constexpr double kLeastFlops = 1e6, kMostFlops = 1e12;
  if (UnitOf(cost.key) == "flops") return {kLeastFlops, kMostFlops};
  return {kLeastPlannedBytes, kMostPlannedBytes};
}

std::set<double> DrawnSizes(const Cost& cost, const std::vector<double>& measured) {
  const std::vector<double> own = OwnSizes(*cost.model);
  const SizeRange range = DrawnRange(cost, own, measured);
  std::set<double> sizes(own.begin(), own.end());
  for (int i = 0; i < kDrawnPoints; ++i) {
    // Both ends to the bit.
    const double share = static_cast<double>(i) / (kDrawnPoints - 1);
    sizes.insert(i == 0                  ? range.low
                 : i == kDrawnPoints - 1 ? range.high
                                         : range.low * std::pow(range.high / range.low, share));
  }
  return sizes;
}

std::optional<AlphaBeta> LineOf(const CostModel& model) {
  if (const auto* line = std::get_if<AlphaBeta>(&model.curve)) return *line;
  return model.summary;
}

v1::CurvePoint PointAt(const Cost& cost, double size) {
  const PricedTime priced = Price(*cost.model, size, cost.bus_factor());
  v1::CurvePoint point;
  point.set_size(size);
  point.set_time_s(priced.time_s);
  point.set_low_s(priced.low_s);
  point.set_high_s(priced.high_s);
  point.set_rate_per_s(RateOf(size, cost.bus_factor(), priced.time_s));
  if (const auto line = LineOf(*cost.model)) point.set_line_s(TimeS(*line, size, cost.bus_factor()));
  return point;
}

double PeakOf(const Cost& cost, const Cluster& cluster, const v1::GetCurveResponse& drawn) {
  if (const auto* form = std::get_if<Efficiency>(&cost.model->curve)) return form->peak_per_s;
  if (UnitOf(cost.key) == "flops" && cluster.peak_flops_per_s > 0) return cluster.peak_flops_per_s;
  constexpr double kWithoutLatency = 1e30;
  const auto line = LineOf(*cost.model);
  double peak = 0;
  if (line) peak = RateOf(kWithoutLatency, cost.bus_factor(), TimeS(*line, kWithoutLatency, cost.bus_factor()));
  for (const v1::CurvePoint& point : drawn.points()) peak = std::max(peak, point.rate_per_s());
  return peak;
}

void SetModel(const Cost& cost, v1::GetCurveResponse& response) {
  Profile alone;
  if (const auto* key = std::get_if<CollectiveKey>(&cost.key)) {
    alone.collectives.push_back({*key, *cost.model});
    *response.mutable_collective() = moeplan::ToProto(alone).collectives(0);
  } else {
    alone.kernels.push_back({std::get<KernelKey>(cost.key), *cost.model});
    *response.mutable_kernel() = moeplan::ToProto(alone).kernels(0);
  }
}

// ---- The samples.

// At most `most` of them, of each size as many as of the others, where it has them; first received first within a size.
std::vector<size_t> SpreadOverSizes(const std::vector<KeySamples::Times>& all, const std::vector<size_t>& places,
                                    size_t most) {
  std::map<double, std::vector<size_t>> by_size;
  for (const size_t place : places) by_size[all[place].size].push_back(place);
  std::vector<std::vector<size_t>> groups;
  for (auto& [size, group] : by_size) groups.push_back(std::move(group));
  groups = Thinned(std::move(groups), most);
  // What a small one leaves, the larger ones share.
  std::ranges::stable_sort(groups, {}, &std::vector<size_t>::size);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<size_t> kept = Thinned(std::move(groups[i]), (most - chosen.size()) / (groups.size() - i));
    chosen.insert(chosen.end(), kept.begin(), kept.end());
  }
  return chosen;
}

// Rising.
std::vector<size_t> ShownPlaces(const std::vector<KeySamples::Times>& all, const OutlierMemory::Outliers& outliers,
                                size_t most) {
  std::vector<size_t> rejected, others;
  for (size_t place = 0; place < all.size(); ++place) (outliers[place].empty() ? others : rejected).push_back(place);
  const size_t least_of_others = std::min(others.size(), most - most / 2);
  std::vector<size_t> shown;
  if (most > least_of_others) shown = SpreadOverSizes(all, rejected, most - least_of_others);
  const std::vector<size_t> rest = SpreadOverSizes(all, others, most - shown.size());
  shown.insert(shown.end(), rest.begin(), rest.end());
  std::ranges::sort(shown);
  return shown;
}

void AddOrigin(const KeySamples::Origin& origin, v1::GetCurveResponse& response) {
  v1::SampleOrigin& message = *response.add_origins();
  message.set_request_id(origin.request_id);
  message.set_calibration(origin.calibration);
  message.set_received_at(origin.received_at);
  message.mutable_provenance()->insert(origin.provenance.begin(), origin.provenance.end());
}

// Where most of its repeats are.
bool IsOutlier(const KeySamples::Times& sample, const std::vector<int>& outliers) {
  return 2 * outliers.size() > sample.times_s.size();
}

void AddSample(const KeySamples::Times& sample, const std::vector<int>& outliers, int origin, const Cost& cost,
               v1::GetCurveResponse& response) {
  const double time_s = Median({sample.times_s.begin(), sample.times_s.end()});
  v1::CurveSample& message = *response.add_samples();
  message.set_size(sample.size);
  message.mutable_repeats_s()->Add(sample.times_s.begin(), sample.times_s.end());
  message.set_time_s(time_s);
  message.set_predicted_s(Price(*cost.model, sample.size, cost.bus_factor()).time_s);
  message.set_rate_per_s(RateOf(sample.size, cost.bus_factor(), time_s));
  message.set_outlier(IsOutlier(sample, outliers));
  message.mutable_outlier_repeats()->Add(outliers.begin(), outliers.end());
  message.set_retired(sample.retired);
  message.set_origin(origin);
}

Status AddRejected(const Store& store, const Profile& profile, const CostKey& key, size_t most,
                   v1::GetCurveResponse& response) {
  std::map<KeySamples::Origin, int> origins;
  const auto origin_of = [&](RejectedSample& rejected) {
    const auto [known, is_new] = origins.try_emplace({.request_id = std::move(rejected.request_id),
                                                      .received_at = std::move(rejected.received_at),
                                                      .provenance = std::move(rejected.sample.provenance)},
                                                     response.origins_size());
    if (is_new) AddOrigin(known->first, response);
    return known->second;
  };
  constexpr size_t kLargestPage = 1000;
  PageRequest next;
  do {
    next.size = static_cast<int>(std::min(kLargestPage, most - response.rejected_samples_size()));
    ASSIGN_OR_RETURN(RejectedPage page, store.ListRejectedSamples(next, profile.name, key));
    for (RejectedSample& rejected : page.samples) {
      v1::RejectedCurveSample& message = *response.add_rejected_samples();
      message.set_size(rejected.sample.size);
      message.mutable_repeats_s()->Add(rejected.sample.times_s.begin(), rejected.sample.times_s.end());
      message.set_reason(std::move(rejected.reason));
      message.set_origin(origin_of(rejected));
    }
    next.token = page.next_token;
  } while (!next.token.empty() && static_cast<size_t>(response.rejected_samples_size()) < most);
  ASSIGN_OR_RETURN(const int total, store.CountRejectedSamples(profile.name, key));
  response.set_total_rejected(total);
  return OkStatus();
}

}  // namespace

StatusOr<v1::GetCurveResponse> GetCurve(const Environment& environment, const v1::GetCurveRequest& request,
                                        std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const size_t most_samples, MostSamplesOf(request));
  ASSIGN_OR_RETURN(const Profile profile, environment.listings().LoadProfile(SelectionOf(request)));
  const std::vector<Cost> costs = CostsOf(profile);
  ASSIGN_OR_RETURN(const Cost cost, CostNamed(request.cost(), costs, profile));
  std::shared_ptr<const OutlierMemory::Outliers> outliers;
  OutlierMemory none;
  OutlierMemory& memory = environment.outliers != nullptr ? *environment.outliers : none;
  const auto choose = [&](const KeySamples& all) {
    outliers = memory.Of(all);
    return ShownPlaces(all.times, *outliers, most_samples);
  };
  ASSIGN_OR_RETURN(const KeySamples of_key,
                   environment.listings().SamplesOfKey(profile.name, cost.key, profile.version, choose));
  if (cancelled.stop_requested()) return error::CallerLeft();

  v1::GetCurveResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  response.set_created_at(profile.created_at);
  response.set_cost(Describe(cost.key));
  SetModel(cost, response);
  response.set_unit(std::string(UnitOf(cost.key)));
  response.set_bus_factor(cost.bus_factor());
  response.set_formula(FormulaText(cost.model->curve, UnitOf(cost.key)));
  std::vector<double> measured, counted;
  for (const KeySamples::Times& one : of_key.times) {
    if (!IsPossible(one.size, one.times_s)) continue;
    measured.push_back(one.size);
    if (!one.retired) counted.push_back(one.size);
  }
  for (const double size : DrawnSizes(cost, measured)) *response.add_points() = PointAt(cost, size);
  response.set_peak_per_s(PeakOf(cost, profile.cluster, response));
  response.set_total_samples(static_cast<int>(of_key.times.size()));
  response.set_later_samples(of_key.later);
  int outlier_samples = 0, outlier_repeats = 0;
  for (size_t place = 0; place < of_key.times.size(); ++place) {
    outlier_samples += IsOutlier(of_key.times[place], (*outliers)[place]) ? 1 : 0;
    outlier_repeats += static_cast<int>((*outliers)[place].size());
  }
  response.set_total_outliers(outlier_samples);
  response.set_total_outlier_repeats(outlier_repeats);
  response.set_total_retired(static_cast<int>(std::ranges::count(of_key.times, true, &KeySamples::Times::retired)));
  for (const KeySamples::Origin& origin : of_key.origins) AddOrigin(origin, response);
  for (size_t i = 0; i < of_key.places.size(); ++i) {
    const size_t place = of_key.places[i];
    AddSample(of_key.times[place], (*outliers)[place], of_key.origin_of[i], cost, response);
  }
  RETURN_IF_ERROR(AddRejected(environment.listings(), profile, cost.key, most_samples, response));
  for (const NextSize& next : NextSizes(*cost.model, counted, UnitOf(cost.key))) {
    v1::NextSize& message = *response.add_next_sizes();
    message.set_size(next.size);
    message.set_why(next.why);
  }
  for (const Cost& one : costs) response.add_costs(Describe(one.key));
  return response;
}

}  // namespace moeplan::service
