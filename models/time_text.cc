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

std::optional<system_clock::time_point> ParseRfc3339(const std::string& text) {
  int year = 0, hour = 0, minute = 0, second = 0, length = 0;
  unsigned month = 0, day = 0;
  const int read = std::sscanf(text.c_str(), "%4d-%2u-%2u%*1[Tt ]%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute,
                               &second, &length);
  constexpr int kWithoutFraction = 19;  // Letters of "2026-01-31T12:00:00".
  if (read != 6 || length != kWithoutFraction) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
    return std::nullopt;
  size_t at = kWithoutFraction;
  double fraction = 0;
  if (at < text.size() && text[at] == '.') {
    double unit = 0.1;
    for (++at; at < text.size() && '0' <= text[at] && text[at] <= '9'; ++at, unit /= 10)
      fraction += unit * (text[at] - '0');
    if (text[at - 1] == '.') return std::nullopt;
  }
  std::chrono::minutes ahead{0};
  const std::string offset = text.substr(at);
  if (offset != "Z" && offset != "z") {
    int hours = 0, minutes = 0, end = 0;
    char sign[2] = "";
    if (std::sscanf(offset.c_str(), "%1[+-]%2d:%2d%n", sign, &hours, &minutes, &end) != 3) return std::nullopt;
    if (end != 6 || offset.size() != 6 || hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
    ahead = std::chrono::hours(hours) + std::chrono::minutes(minutes);
    if (*sign == '-') ahead = -ahead;
  }
  const auto whole = std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
                     std::chrono::seconds(second) - ahead;
  return whole + std::chrono::duration_cast<system_clock::duration>(std::chrono::duration<double>(fraction));
}

}  // namespace moeplan
