// Moments as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace moeplan {

// RFC 3339 in UTC, "2026-01-31T12:00:00Z", which sorts by time. Pure.
std::string Rfc3339(std::chrono::system_clock::time_point time);
// To the millisecond, "2026-01-31T12:00:00.123Z".
std::string Rfc3339Ms(std::chrono::system_clock::time_point time);

// Reads RFC 3339 of any offset, such as "2026-01-31T13:00:00.5+01:00"; absent: it is none, or of a day that never was.
std::optional<std::chrono::system_clock::time_point> ParseRfc3339(const std::string& text);

}  // namespace moeplan
