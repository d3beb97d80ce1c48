#include "proto/convert/profile.h"

#include <cmath>

#include "proto/convert/cluster.h"
#include "proto/convert/keys.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

// ---- Reading.

StatusOr<std::vector<TimePoint>> TimePointsFromProto(const google::protobuf::RepeatedPtrField<v1::TimePoint>& points,
                                                     SizeUnit unit, const std::string& path) {
  std::vector<TimePoint> read;
  for (const v1::TimePoint& point : points) {
    ASSIGN_OR_RETURN(const double size, SizeFromProto(point, unit, ItemPath(path, read.size())));
    read.push_back({.size = size, .time_s = point.time_s()});
  }
  return read;
}

StatusOr<Curve> CurveFromProto(const v1::LogLog& message, SizeUnit unit, const std::string& path) {
  ASSIGN_OR_RETURN(auto points, TimePointsFromProto(message.points(), unit, path + ".points"));
  return Curve(LogLog{std::move(points)});
}

StatusOr<Curve> CurveFromProto(const v1::Interpolated& message, SizeUnit unit, const std::string& path) {
  ASSIGN_OR_RETURN(auto points, TimePointsFromProto(message.points(), unit, path + ".points"));
  return Curve(Interpolated{std::move(points)});
}

StatusOr<Curve> CurveFromProto(const v1::Efficiency& message, SizeUnit unit, const std::string& path) {
  UnitChoice peak = {.bytes_field = "peakBytesPerS", .flops_field = "peakFlopsPerS"};
  if (message.has_peak_bytes_per_s()) peak.bytes = message.peak_bytes_per_s();
  if (message.has_peak_flops_per_s()) peak.flops = message.peak_flops_per_s();
  Efficiency curve;
  ASSIGN_OR_RETURN(curve.peak_per_s, RequiredInUnit(peak, unit, path));
  for (const v1::EfficiencyPoint& point : message.points()) {
    ASSIGN_OR_RETURN(const double size, SizeFromProto(point, unit, ItemPath(path + ".points", curve.points.size())));
    curve.points.push_back({.size = size, .efficiency = point.efficiency()});
  }
  return Curve(std::move(curve));
}

StatusOr<AlphaBeta> LineFromProto(const v1::AlphaBeta& message, SizeUnit unit, const std::string& path) {
  UnitChoice beta = {.bytes_field = "betaSPerByte", .flops_field = "betaSPerFlop"};
  if (message.has_beta_s_per_byte()) beta.bytes = message.beta_s_per_byte();
  if (message.has_beta_s_per_flop()) beta.flops = message.beta_s_per_flop();
  ASSIGN_OR_RETURN(const std::optional<double> slope, InUnit(beta, unit, path));
  return AlphaBeta{.alpha_s = message.alpha_s(), .beta_s_per_unit = slope.value_or(0)};
}

// The form that plans, checked.
template <typename Entry>
StatusOr<Curve> PlanningCurve(const Entry& entry, SizeUnit unit, const std::string& path) {
  StatusOr<Curve> curve = error::Mismatch(path, "no cost model", "efficiency, interpolated, logLog or alphaBeta");
  if (entry.has_efficiency()) {
    curve = CurveFromProto(entry.efficiency(), unit, path + ".efficiency");
  } else if (entry.has_interpolated()) {
    curve = CurveFromProto(entry.interpolated(), unit, path + ".interpolated");
  } else if (entry.has_log_log()) {
    curve = CurveFromProto(entry.log_log(), unit, path + ".logLog");
  } else if (entry.has_alpha_beta()) {
    ASSIGN_OR_RETURN(curve, LineFromProto(entry.alpha_beta(), unit, path + ".alphaBeta"));
  }
  if (curve.ok()) RETURN_IF_ERROR(ValidateCurve(*curve, path));
  return curve;
}

Status CheckFit(const FitQuality& fit, const Curve& curve, const std::string& path) {
  const auto at_least = [&](const char* field, double value, double least) {
    if (std::isfinite(value) && value >= least) return OkStatus();
    return error::Mismatch(FieldPath(path, field), StrCat(value), StrCat("a finite number of at least ", least));
  };
  if (fit.chosen != FormName(curve)) {
    return error::Mismatch(FieldPath(path, "chosen"), fit.chosen.empty() ? "nothing" : fit.chosen,
                           StrCat(FormName(curve), ", the form that plans"));
  }
  RETURN_IF_ERROR(at_least("relativeErrorP50", fit.relative_error_p50, 0));
  RETURN_IF_ERROR(at_least("relativeErrorP95", fit.relative_error_p95, 0));
  RETURN_IF_ERROR(at_least("alphaLowS", fit.alpha_low_s, 0));
  RETURN_IF_ERROR(at_least("alphaHighS", fit.alpha_high_s, fit.alpha_low_s));
  RETURN_IF_ERROR(at_least("betaLow", fit.beta_low_s_per_unit, 0));
  RETURN_IF_ERROR(at_least("betaHigh", fit.beta_high_s_per_unit, fit.beta_low_s_per_unit));
  if (!(fit.interval_low_ratio > 0)) {
    return error::Mismatch(FieldPath(path, "intervalLowRatio"), StrCat(fit.interval_low_ratio), "a number above 0");
  }
  RETURN_IF_ERROR(at_least("intervalHighRatio", fit.interval_high_ratio, fit.interval_low_ratio));
  for (size_t i = 0; i < fit.breakpoints.size(); ++i) {
    RETURN_IF_ERROR(at_least(ItemPath("breakpointsBytes", i).c_str(), fit.breakpoints[i], 0));
  }
  RETURN_IF_ERROR(at_least("outliers", fit.outliers, 0));
  return at_least("points", fit.points, 0);
}

Status ReadBetaInterval(const v1::Fit& message, SizeUnit unit, const std::string& path, FitQuality& fit) {
  UnitChoice low = {.bytes_field = "betaLowSPerByte", .flops_field = "betaLowSPerFlop"};
  if (message.has_beta_low_s_per_byte()) low.bytes = message.beta_low_s_per_byte();
  if (message.has_beta_low_s_per_flop()) low.flops = message.beta_low_s_per_flop();
  UnitChoice high = {.bytes_field = "betaHighSPerByte", .flops_field = "betaHighSPerFlop"};
  if (message.has_beta_high_s_per_byte()) high.bytes = message.beta_high_s_per_byte();
  if (message.has_beta_high_s_per_flop()) high.flops = message.beta_high_s_per_flop();
  ASSIGN_OR_RETURN(const std::optional<double> low_s, InUnit(low, unit, path));
  ASSIGN_OR_RETURN(const std::optional<double> high_s, InUnit(high, unit, path));
  fit.beta_low_s_per_unit = low_s.value_or(0);
  fit.beta_high_s_per_unit = high_s.value_or(0);
  return OkStatus();
}

StatusOr<FitQuality> FitFromProto(const v1::Fit& message, const Curve& curve, SizeUnit unit, const std::string& path) {
  FitQuality fit;
  fit.chosen = message.chosen();
  fit.relative_error_p50 = message.relative_error_p50();
  fit.relative_error_p95 = message.relative_error_p95();
  fit.alpha_low_s = message.alpha_low_s();
  fit.alpha_high_s = message.alpha_high_s();
  RETURN_IF_ERROR(ReadBetaInterval(message, unit, path, fit));
  if (message.has_interval_low_ratio()) fit.interval_low_ratio = message.interval_low_ratio();
  if (message.has_interval_high_ratio()) fit.interval_high_ratio = message.interval_high_ratio();
  fit.breakpoints.assign(message.breakpoints_bytes().begin(), message.breakpoints_bytes().end());
  fit.outliers = message.outliers();
  fit.points = message.points();
  RETURN_IF_ERROR(CheckFit(fit, curve, path));
  return fit;
}

template <typename Entry>
StatusOr<CostModel> CostModelFromProto(const Entry& entry, SizeUnit unit, const std::string& path) {
  ASSIGN_OR_RETURN(Curve curve, PlanningCurve(entry, unit, path));
  CostModel model = MakeCostModel(std::move(curve));
  if (entry.has_alpha_beta() && !std::holds_alternative<AlphaBeta>(model.curve)) {
    ASSIGN_OR_RETURN(model.summary, LineFromProto(entry.alpha_beta(), unit, path + ".alphaBeta"));
  }
  if (entry.has_fit()) {
    ASSIGN_OR_RETURN(model.fit, FitFromProto(entry.fit(), model.curve, unit, path + ".fit"));
  }
  return model;
}

StatusOr<CollectiveModel> CollectiveModelFromProto(const v1::CollectiveModel& message, const std::string& path) {
  CollectiveModel entry;
  ASSIGN_OR_RETURN(entry.key, CollectiveKeyFromProto(message, path));
  ASSIGN_OR_RETURN(entry.model, CostModelFromProto(message, UnitOf(entry.key), path));
  return entry;
}

StatusOr<KernelModel> KernelModelFromProto(const v1::KernelModel& message, const std::string& path) {
  KernelModel entry;
  ASSIGN_OR_RETURN(entry.key, KernelKeyFromProto(message, path));
  ASSIGN_OR_RETURN(entry.model, CostModelFromProto(message, UnitOf(entry.key), path));
  return entry;
}

// ---- Writing.

template <typename Message>
void SetPoints(const std::vector<TimePoint>& points, SizeUnit unit, Message& message) {
  for (const TimePoint& point : points) {
    v1::TimePoint& written = *message.add_points();
    SetSize(point.size, unit, written);
    written.set_time_s(point.time_s);
  }
}

void SetLine(const AlphaBeta& line, SizeUnit unit, v1::AlphaBeta& message) {
  message.set_alpha_s(line.alpha_s);
  unit == SizeUnit::kFlops ? message.set_beta_s_per_flop(line.beta_s_per_unit)
                           : message.set_beta_s_per_byte(line.beta_s_per_unit);
}

template <typename Entry>
void SetCurve(const LogLog& curve, SizeUnit unit, Entry& entry) {
  SetPoints(curve.points, unit, *entry.mutable_log_log());
}
template <typename Entry>
void SetCurve(const Interpolated& curve, SizeUnit unit, Entry& entry) {
  SetPoints(curve.points, unit, *entry.mutable_interpolated());
}
template <typename Entry>
void SetCurve(const AlphaBeta& line, SizeUnit unit, Entry& entry) {
  SetLine(line, unit, *entry.mutable_alpha_beta());
}
template <typename Entry>
void SetCurve(const Efficiency& curve, SizeUnit unit, Entry& entry) {
  v1::Efficiency& message = *entry.mutable_efficiency();
  unit == SizeUnit::kFlops ? message.set_peak_flops_per_s(curve.peak_per_s)
                           : message.set_peak_bytes_per_s(curve.peak_per_s);
  for (const EfficiencyPoint& point : curve.points) {
    v1::EfficiencyPoint& written = *message.add_points();
    SetSize(point.size, unit, written);
    written.set_efficiency(point.efficiency);
  }
}

void SetBetaInterval(const FitQuality& fit, SizeUnit unit, v1::Fit& message) {
  if (unit == SizeUnit::kFlops) {
    message.set_beta_low_s_per_flop(fit.beta_low_s_per_unit);
    message.set_beta_high_s_per_flop(fit.beta_high_s_per_unit);
  } else {
    message.set_beta_low_s_per_byte(fit.beta_low_s_per_unit);
    message.set_beta_high_s_per_byte(fit.beta_high_s_per_unit);
  }
}

void SetFit(const FitQuality& fit, SizeUnit unit, v1::Fit& message) {
  message.set_chosen(fit.chosen);
  message.set_relative_error_p50(fit.relative_error_p50);
  message.set_relative_error_p95(fit.relative_error_p95);
  message.set_alpha_low_s(fit.alpha_low_s);
  message.set_alpha_high_s(fit.alpha_high_s);
  SetBetaInterval(fit, unit, message);
  message.set_interval_low_ratio(fit.interval_low_ratio);
  message.set_interval_high_ratio(fit.interval_high_ratio);
  for (const double breakpoint : fit.breakpoints) message.add_breakpoints_bytes(breakpoint);
  message.set_outliers(fit.outliers);
  message.set_points(fit.points);
}

template <typename Key, typename Entry>
void SetEntry(const Key& key, const CostModel& model, Entry& entry) {
  const SizeUnit unit = UnitOf(key);
  SetKey(key, entry);
  std::visit([&](const auto& form) { SetCurve(form, unit, entry); }, model.curve);
  if (model.summary) SetLine(*model.summary, unit, *entry.mutable_alpha_beta());
  if (model.fit) SetFit(*model.fit, unit, *entry.mutable_fit());
}

}  // namespace

StatusOr<Profile> ProfileFromProto(const v1::Profile& message) {
  if (!message.has_cluster()) return error::Mismatch("cluster", "nothing", "an object");
  if (message.version() < 0) return error::Mismatch("version", StrCat(message.version()), "at least 0");
  Profile profile = {.name = message.name(), .version = message.version(), .created_at = message.created_at()};
  ASSIGN_OR_RETURN(profile.cluster, ClusterFromProto(message.cluster()));
  for (const v1::CollectiveModel& entry : message.collectives()) {
    ASSIGN_OR_RETURN(CollectiveModel model,
                     CollectiveModelFromProto(entry, ItemPath("collectives", profile.collectives.size())));
    profile.collectives.push_back(std::move(model));
  }
  for (const v1::KernelModel& entry : message.kernels()) {
    ASSIGN_OR_RETURN(KernelModel model, KernelModelFromProto(entry, ItemPath("kernels", profile.kernels.size())));
    profile.kernels.push_back(std::move(model));
  }
  RETURN_IF_ERROR(ValidateProfile(profile));
  return profile;
}

v1::Profile ToProto(const Profile& profile) {
  v1::Profile message;
  message.set_name(profile.name);
  message.set_version(profile.version);
  message.set_created_at(profile.created_at);
  *message.mutable_cluster() = ToProto(profile.cluster);
  for (const CollectiveModel& entry : profile.collectives) SetEntry(entry.key, entry.model, *message.add_collectives());
  for (const KernelModel& entry : profile.kernels) SetEntry(entry.key, entry.model, *message.add_kernels());
  return message;
}

}  // namespace moeplan
