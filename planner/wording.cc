#include "planner/wording.h"

#include <cstdio>

namespace moeplan::planner {

std::string Milliseconds(double time_s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", 1e3 * time_s);
  return text;
}

std::string ThreeDigits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string Duration(double seconds) {
  char text[64];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof text, "%.1f µs", seconds * 1e6);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.2f s", seconds);
  }
  return text;
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string Gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", bytes / 1e9);
  return text;
}

}  // namespace moeplan::planner
