#include "models/time_text.h"

#include <cstdio>

namespace moeplan {

using std::chrono::system_clock;

std::string Rfc3339(system_clock::time_point time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto midnight = std::chrono::floor<std::chrono::days>(second);
  const std::chrono::year_month_day date(midnight);
  const std::chrono::hh_mm_ss clock(second - midnight);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

std::string Rfc3339Ms(system_clock::time_point time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time - second).count();
  char text[16];
  std::snprintf(text, sizeof text, ".%03dZ", static_cast<int>(ms));
  std::string whole = Rfc3339(second);
  whole.pop_back();
  return whole + text;
}

}  // namespace moeplan
