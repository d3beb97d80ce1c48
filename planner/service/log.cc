#include "planner/service/log.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/time_text.h"

namespace moeplan::service {
namespace {

using std::chrono::system_clock;

// Bytes that are no UTF-8 are replaced.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

// Without control characters.
std::string OnOneLine(std::string text) {
  std::ranges::replace_if(
      text, [](char byte) { return static_cast<unsigned char>(byte) < ' '; }, ' ');
  return text;
}

}  // namespace

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "";
}

std::string ToTextLine(const LogRecord& record, system_clock::time_point at) {
  std::string line = Rfc3339Ms(at).append(" ").append(Name(record.level)).append(" ").append(OnOneLine(record.event));
  for (const auto& [name, value] : record.facts) line.append(" ").append(name).append("=").append(Quoted(value));
  return line;
}

std::string ToJsonLine(const LogRecord& record, system_clock::time_point at) {
  nlohmann::ordered_json line = {{"time", Rfc3339Ms(at)}, {"level", Name(record.level)}, {"event", record.event}};
  for (const auto& [name, value] : record.facts) line[name] = value;
  return line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace moeplan::service
