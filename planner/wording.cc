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

}  // namespace moeplan::planner
