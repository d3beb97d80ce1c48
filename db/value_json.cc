#include "db/value_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "db/guarded.h"

namespace moeplan::db {

using nlohmann::json;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

json NumberJson(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

double NumberOf(const json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string name = value.get<std::string>();
  if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (name == "Infinity") return kInfinity;
  if (name == "-Infinity") return -kInfinity;
  throw DamagedRow("found the number '" + name + "'");
}

json NumbersJson(const std::vector<double>& numbers) {
  json list = json::array();
  for (const double number : numbers) list.push_back(NumberJson(number));
  return list;
}

std::vector<double> NumbersOf(const json& list) {
  std::vector<double> numbers;
  for (const json& number : list) numbers.push_back(NumberOf(number));
  return numbers;
}

json PairJson(double first, double second) { return json::array({NumberJson(first), NumberJson(second)}); }

// A point is [size, time_s] or [size, efficiency].
json PointJson(const TimePoint& point) { return PairJson(point.size, point.time_s); }
json PointJson(const EfficiencyPoint& point) { return PairJson(point.size, point.efficiency); }

template <typename Point>
json PointsJson(const std::vector<Point>& points) {
  json list = json::array();
  for (const Point& point : points) list.push_back(PointJson(point));
  return list;
}

template <typename Point>
std::vector<Point> PointsOf(const json& list) {
  std::vector<Point> points;
  for (const json& pair : list) points.push_back({NumberOf(pair.at(0)), NumberOf(pair.at(1))});
  return points;
}

json FormJson(const LogLog& curve) { return {{"points", PointsJson(curve.points)}}; }
json FormJson(const Interpolated& curve) { return {{"points", PointsJson(curve.points)}}; }
json FormJson(const Efficiency& curve) {
  return {{"peakPerS", NumberJson(curve.peak_per_s)}, {"points", PointsJson(curve.points)}};
}
json FormJson(const AlphaBeta& curve) {
  return {{"alphaS", NumberJson(curve.alpha_s)}, {"betaSPerUnit", NumberJson(curve.beta_s_per_unit)}};
}

AlphaBeta AlphaBetaOf(const json& value) {
  return {.alpha_s = NumberOf(value.at("alphaS")), .beta_s_per_unit = NumberOf(value.at("betaSPerUnit"))};
}

json CurveJson(const Curve& curve) {
  return {{std::string(FormName(curve)), std::visit([](const auto& form) { return FormJson(form); }, curve)}};
}

Curve CurveOf(const json& value) {
  if (value.contains("logLog")) return LogLog{PointsOf<TimePoint>(value["logLog"].at("points"))};
  if (value.contains("interpolated")) return Interpolated{PointsOf<TimePoint>(value["interpolated"].at("points"))};
  if (value.contains("alphaBeta")) return AlphaBetaOf(value["alphaBeta"]);
  const json& efficiency = value.at("efficiency");
  return Efficiency{NumberOf(efficiency.at("peakPerS")), PointsOf<EfficiencyPoint>(efficiency.at("points"))};
}

json FitJson(const FitQuality& fit) {
  return {{"chosen", fit.chosen},
          {"relativeErrorP50", NumberJson(fit.relative_error_p50)},
          {"relativeErrorP95", NumberJson(fit.relative_error_p95)},
          {"alphaLowS", NumberJson(fit.alpha_low_s)},
          {"alphaHighS", NumberJson(fit.alpha_high_s)},
          {"betaLowSPerUnit", NumberJson(fit.beta_low_s_per_unit)},
          {"betaHighSPerUnit", NumberJson(fit.beta_high_s_per_unit)},
          {"intervalLowRatio", NumberJson(fit.interval_low_ratio)},
          {"intervalHighRatio", NumberJson(fit.interval_high_ratio)},
          {"breakpoints", NumbersJson(fit.breakpoints)},
          {"outliers", fit.outliers},
          {"points", fit.points}};
}

FitQuality FitOf(const json& value) {
  return {.chosen = value.at("chosen").get<std::string>(),
          .relative_error_p50 = NumberOf(value.at("relativeErrorP50")),
          .relative_error_p95 = NumberOf(value.at("relativeErrorP95")),
          .alpha_low_s = NumberOf(value.at("alphaLowS")),
          .alpha_high_s = NumberOf(value.at("alphaHighS")),
          .beta_low_s_per_unit = NumberOf(value.at("betaLowSPerUnit")),
          .beta_high_s_per_unit = NumberOf(value.at("betaHighSPerUnit")),
          .interval_low_ratio = NumberOf(value.at("intervalLowRatio")),
          .interval_high_ratio = NumberOf(value.at("intervalHighRatio")),
          .breakpoints = NumbersOf(value.at("breakpoints")),
          .outliers = value.at("outliers").get<int>(),
          .points = value.at("points").get<int>()};
}

bool BeginsNumber(const char* at, const char* end) {
  if (at != end && *at == '-') ++at;
  return at != end && *at >= '0' && *at <= '9';
}

// Of "[1.5,2e-3]", as json dumps it; absent: there is more to it.
std::optional<std::vector<double>> PlainNumbers(const std::string& text) {
  std::vector<double> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  if (at == end || *at != '[') return std::nullopt;
  do {
    ++at;
    if (!BeginsNumber(at, end)) return std::nullopt;
    const auto [rest, problem] = std::from_chars(at, end, numbers.emplace_back());
    if (problem != std::errc()) return std::nullopt;
    at = rest;
  } while (at != end && *at == ',');
  if (at == end || *at != ']' || at + 1 != end) return std::nullopt;
  return numbers;
}

}  // namespace

std::string CostModelText(const CostModel& model) {
  json value = {{"curve", CurveJson(model.curve)},
                {"sizeLow", NumberJson(model.size_low)},
                {"sizeHigh", NumberJson(model.size_high)}};
  if (model.summary) value["summary"] = FormJson(*model.summary);
  if (model.fit) value["fit"] = FitJson(*model.fit);
  return value.dump();
}

CostModel CostModelOf(const std::string& text) {
  const json value = json::parse(text);
  CostModel model;
  model.curve = CurveOf(value.at("curve"));
  if (value.contains("summary")) model.summary = AlphaBetaOf(value["summary"]);
  if (value.contains("fit")) model.fit = FitOf(value["fit"]);
  model.size_low = NumberOf(value.at("sizeLow"));
  model.size_high = NumberOf(value.at("sizeHigh"));
  return model;
}

std::string TimesText(const std::vector<double>& times_s) { return NumbersJson(times_s).dump(); }
// Whoever reads samples reads millions of them.
std::vector<double> TimesOf(const std::string& text) {
  std::optional<std::vector<double>> plain = PlainNumbers(text);
  return plain ? *std::move(plain) : NumbersOf(json::parse(text));
}

std::string ProvenanceText(const Provenance& provenance) { return json(provenance).dump(); }
Provenance ProvenanceOf(const std::string& text) { return json::parse(text).get<Provenance>(); }

}  // namespace moeplan::db
