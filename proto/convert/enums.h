// Domain enums to and from those of messages.
//
// Both list the same names in the same order (a test compares them); where a message has UNSPECIFIED at 0, its numbers
// are one higher. Names that a program has added travel under OwnNumber.
#pragma once

#include <google/protobuf/generated_enum_reflection.h>

#include <string_view>

#include "models/own_names.h"
#include "models/status.h"
#include "proto/enum_names.h"
#include "proto/errors.h"

namespace moeplan {

template <typename Kind>
int FirstEnumNumber() {
  return google::protobuf::GetEnumDescriptor<Kind>()->value(0)->name() == "UNSPECIFIED" ? 1 : 0;
}

template <typename Kind, typename Domain>
Kind EnumToProto(Domain value) {
  if constexpr (kIsOpen<Domain>) {
    if (OwnNames<Domain>::IndexOf(value) >= 0) return static_cast<Kind>(OwnNumber(Name(value)));
  }
  return static_cast<Kind>(static_cast<int>(value) + FirstEnumNumber<Kind>());
}

// Refuses UNSPECIFIED, and numbers without a name, which a newer peer may send.
template <typename Domain, typename Kind>
StatusOr<Domain> EnumFromProto(Kind kind, std::string_view path) {
  const auto& type = *google::protobuf::GetEnumDescriptor<Kind>();
  const int number = static_cast<int>(kind);
  if (type.FindValueByNumber(number) == nullptr) {
    if constexpr (kIsOpen<Domain>) {
      for (const Domain own : AllFrom(static_cast<Domain>(kBuiltIn<Domain>))) {
        if (OwnNumber(Name(own)) == number) return own;
      }
    }
    return error::UnknownEnum(path, StrCat(number), type);
  }
  if (number < FirstEnumNumber<Kind>()) return error::UnknownEnum(path, "nothing", type);
  if constexpr (kIsOpen<Domain>) {
    // A name of messages alone, such as the order of a training graph among families of schedules.
    if (number - FirstEnumNumber<Kind>() >= kBuiltIn<Domain>) {
      return error::UnknownEnum(path, type.FindValueByNumber(number)->name(), type);
    }
  }
  return static_cast<Domain>(number - FirstEnumNumber<Kind>());
}

}  // namespace moeplan
