// The JSON form of messages (contract): proto3 JSON, read strictly and printed in full.
//
// Reading takes one object and refuses, with the path of the field, what was found and what was expected: unknown
// fields, keys that stand twice, wrong types (a number in a string too), numbers that are not finite or do not fit,
// unknown enum names, two alternatives of one choice. null is the same as absent. Text that is not JSON is refused with
// line and column. No exception leaves, whatever the bytes.
//
// A google.protobuf.Struct is any JSON object, as it stands.
//
// Printing gives every scalar and list, zeros and empty lists too, in the order of the .proto files; optional scalars,
// messages and alternatives that are not set, and empty maps, are left out. Doubles are printed in the shortest form
// that reads back to the same bits. Bytes that are not UTF-8 become U+FFFD.
//
// Pure but for ReadJsonFile; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan {

// Longer texts, and deeper ones, are refused.
inline constexpr size_t kMaxJsonBytes = size_t{64} << 20;
inline constexpr int kMaxJsonDepth = 64;

// Fills `message`, which is cleared first. `source_name` (a file name, "request") begins every error.
Status ParseJson(std::string_view text, std::string_view source_name, google::protobuf::Message& message);

// The text of a file; kInvalidInput naming the file, and what was `expected` in it, when it is missing, unreadable or
// longer than kMaxJsonBytes.
StatusOr<std::string> ReadTextFile(const std::string& path, std::string_view expected = "JSON");

template <typename Message>
StatusOr<Message> FromJson(std::string_view text, std::string_view source_name) {
  Message message;
  RETURN_IF_ERROR(ParseJson(text, source_name, message));
  return message;
}

template <typename Message>
StatusOr<Message> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return FromJson<Message>(text, path);
}

enum class JsonStyle {
  kPretty,   // Two spaces a level, lists of scalars on one line, a line break at the end.
  kCompact,  // One line without line break, for --jsonl.
};

// One object. Requires finite doubles; what is not finite is our own bug and prints as null, so that the text stays
// JSON.
std::string ToJson(const google::protobuf::Message& message, JsonStyle style = JsonStyle::kPretty);

}  // namespace moeplan
