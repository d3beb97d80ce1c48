// A cost model in words, with its numbers.
#pragma once

#include <string>
#include <string_view>

#include "models/cost/cost_model.h"

namespace moeplan {

// "64 KiB", "1.5 MiB", "300 bytes"; of flops "1.2 Gflop", of launches "12 launch". Three digits.
std::string SizeText(double size, std::string_view unit);
// "12.3 µs", "4.56 ms". Three digits.
std::string TimeText(double time_s);
// "23.1 GB/s", "312 Tflop/s". Three digits.
std::string RateText(double per_s, std::string_view unit);

// "time = 12.3 µs + bytes / 23.1 GB/s", "log time linear in log bytes between 17 points from 1 KiB to 64 MiB; constant
// time below, constant rate above". `unit` is UnitOf's. Requires a validated curve. Pure.
std::string FormulaText(const Curve& curve, std::string_view unit);

}  // namespace moeplan
