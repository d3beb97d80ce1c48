#include "models/cost/formula.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <span>

#include "models/text.h"

namespace moeplan {
namespace {

bool CountsBytes(std::string_view unit) { return unit == "bytes"; }

std::string ThreeDigits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 && value < 1e6 ? "%.0f" : "%.3g", value);
  return text;
}

// The value in the largest of the scales that it reaches, else in the first.
std::string Scaled(double value, double step, std::span<const char* const> names) {
  size_t scale = 0;
  // What would print as a whole step counts as one.
  while (scale + 1 < names.size() && value >= step * 0.9995) value /= step, ++scale;
  return StrCat(ThreeDigits(value), " ", names[scale]);
}

constexpr const char* kDecimal[] = {"", "k", "M", "G", "T", "P", "E"};

// Names one of the unit: "flop", "launch".
std::string_view One(std::string_view unit) { return unit == "flops" ? "flop" : "launch"; }

std::string Decimal(double value, std::string_view unit) {
  size_t scale = 0;
  while (scale + 1 < std::size(kDecimal) && value >= 999.5) value /= 1000, ++scale;
  return StrCat(ThreeDigits(value), " ", kDecimal[scale], unit);
}

std::string Points(size_t count) { return count == 1 ? "1 point" : StrCat(count, " points"); }

template <typename Form>
std::string Range(const Form& form, std::string_view unit) {
  if (form.points.size() == 1) return StrCat("at ", SizeText(form.points.front().size, unit));
  return StrCat("from ", SizeText(form.points.front().size, unit), " to ", SizeText(form.points.back().size, unit));
}

std::string TextOf(const AlphaBeta& line, std::string_view unit) {
  const std::string start = StrCat("time = ", TimeText(line.alpha_s));
  const std::string rate =
      line.beta_s_per_unit > 0 ? StrCat(unit, " / ", RateText(1 / line.beta_s_per_unit, unit)) : "";
  if (rate.empty()) return StrCat(start, " whatever the ", unit);
  return line.alpha_s > 0 ? StrCat(start, " + ", rate) : StrCat("time = ", rate);
}

std::string TextOf(const Efficiency& form, std::string_view unit) {
  return StrCat("time = ", unit, "·φ / (", RateText(form.peak_per_s, unit), " · r(", unit, ")), r linear in log2(",
                unit, ") between ", Points(form.points.size()), " ", Range(form, unit),
                "; constant time below, constant r above");
}

std::string TextOf(const Interpolated& form, std::string_view unit) {
  return StrCat("time linear in ", unit, " between ", Points(form.points.size()), " ", Range(form, unit),
                "; constant time below, the last slope above");
}

std::string TextOf(const LogLog& form, std::string_view unit) {
  return StrCat("log time linear in log ", unit, " between ", Points(form.points.size()), " ", Range(form, unit),
                "; constant time below, constant rate above");
}

}  // namespace

std::string SizeText(double size, std::string_view unit) {
  if (!CountsBytes(unit)) return Decimal(size, One(unit));
  constexpr std::array<const char*, 5> kBinary = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  return Scaled(size, 1024, kBinary);
}

std::string TimeText(double time_s) {
  constexpr std::array<const char*, 4> kTimes = {"ns", "µs", "ms", "s"};
  return time_s == 0 ? "0 s" : Scaled(time_s * 1e9, 1000, kTimes);
}

std::string RateText(double per_s, std::string_view unit) {
  return Decimal(per_s, CountsBytes(unit) ? "B/s" : StrCat(One(unit), "/s"));
}

std::string FormulaText(const Curve& curve, std::string_view unit) {
  return std::visit([&](const auto& form) { return TextOf(form, unit); }, curve);
}

}  // namespace moeplan
