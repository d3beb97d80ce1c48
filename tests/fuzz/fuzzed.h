// What the fuzz targets share. A target returns for every input: bad input is a Status with a message, and what a
// target checks beyond that, it checks with MOEPLAN_CHECK.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "models/check.h"
#include "models/status.h"
#include "proto/json.h"

namespace moeplan {

inline std::string_view TextOf(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// An error says what is wrong, and that the input is.
inline void CheckRefusal(const Status& status) {
  MOEPLAN_CHECK(status.code() == StatusCode::kInvalidInput);
  MOEPLAN_CHECK(!status.message().empty());
}

// The text of a file as its message, read, printed and read again; absent: it is none.
template <typename Message>
std::optional<Message> FuzzJsonMessage(std::string_view text) {
  const StatusOr<Message> message = FromJson<Message>(text, "file");
  if (!message.ok()) {
    CheckRefusal(message.status());
    return std::nullopt;
  }
  const std::string printed = ToJson(*message);
  const StatusOr<Message> printed_message = FromJson<Message>(printed, "printed");
  MOEPLAN_CHECK(printed_message.ok());
  MOEPLAN_CHECK(ToJson(*printed_message) == printed);
  MOEPLAN_CHECK(FromJson<Message>(ToJson(*message, JsonStyle::kCompact), "compact").ok());
  return *message;
}

// Likewise; `from` makes the value of it that our code works
// with, which is turned into a message and back.
template <typename Message, typename From>
void FuzzJsonFile(std::string_view text, const From& from) {
  const std::optional<Message> message = FuzzJsonMessage<Message>(text);
  if (!message) return;
  const auto value = from(*message);
  if (!value.ok()) return CheckRefusal(value.status());
  const Message written = ToProto(*value);
  const auto again = from(written);
  MOEPLAN_CHECK(again.ok());
  MOEPLAN_CHECK(ToJson(ToProto(*again)) == ToJson(written));
  if constexpr (std::equality_comparable<std::remove_cvref_t<decltype(*value)>>) MOEPLAN_CHECK(*again == *value);
}

}  // namespace moeplan
