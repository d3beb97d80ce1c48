// The names and numbers of enum values in messages: those of the .proto files, and those that a program has added
// (models/extension/extension.h).
//
// An own name travels under a number worked out from the name, so that all who have added it agree on it, whatever
// else they have added.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeplan {

// Above all numbers of .proto files.
int OwnNumber(std::string_view name);

// The names that may be written: all but UNSPECIFIED, own ones last.
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);

std::optional<int> EnumNumber(const google::protobuf::EnumDescriptor& type, const std::string& name);
// Nothing for a number without name, which a newer peer may send, or one that has added more.
std::optional<std::string> EnumName(const google::protobuf::EnumDescriptor& type, int number);

// The same for one that has one; the number itself for one that has none.
template <typename Kind>
std::string EnumNameOf(Kind kind) {
  const int number = static_cast<int>(kind);
  return EnumName(*google::protobuf::GetEnumDescriptor<Kind>(), number).value_or(std::to_string(number));
}

}  // namespace moeplan
