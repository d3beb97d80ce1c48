#include "planner/service/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moeplan::service {
namespace {

using std::chrono::system_clock;

const system_clock::time_point kAt =
    system_clock::time_point(std::chrono::sys_days(std::chrono::year(2026) / 1 / 31)) + std::chrono::milliseconds(7);

TEST(LogTest, ARecordIsOneLineWhateverItsFactsAre) {
  const LogRecord record = {LogLevel::kWarning, "refused", {{"peer", "a\nb\"c\x01\xff"}, {"ms", "1.5"}}};
  const std::string text = ToTextLine(record, kAt), json = ToJsonLine(record, kAt);
  EXPECT_EQ(text, "2026-01-31T00:00:00.007Z warning refused peer=\"a\\nb\\\"c\\u0001\xEF\xBF\xBD\" ms=\"1.5\"");
  EXPECT_EQ(json.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed.at("time"), "2026-01-31T00:00:00.007Z");
  EXPECT_EQ(parsed.at("level"), "warning");
  EXPECT_EQ(parsed.at("event"), "refused");
  EXPECT_EQ(parsed.at("peer"), "a\nb\"c\x01\xEF\xBF\xBD");
}

}  // namespace
}  // namespace moeplan::service
