// What the service tells whoever runs it: an event and its facts, as text or as JSON, one line each.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeplan::service {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
std::string_view Name(LogLevel level);

struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::string event;                                       // A sentence without what differs from time to time.
  std::vector<std::pair<std::string, std::string>> facts;  // Such as {"requestId", "7f…"}; the texts may be anything.
};

// Takes records on any thread, also several at once.
using LogSink = std::function<void(const LogRecord& record)>;

// "2026-01-31T12:00:00.123Z warning an answered plan was not kept reason="disk full"": control characters and quotes in
// facts are escaped, so that a record is always one line.
std::string ToTextLine(const LogRecord& record, std::chrono::system_clock::time_point at);
// The same as a JSON object: "time", "level", "event" and the facts.
std::string ToJsonLine(const LogRecord& record, std::chrono::system_clock::time_point at);

}  // namespace moeplan::service
