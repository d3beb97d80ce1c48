// Names that a program adds to an enum ("own" ones) beyond those that moeplan is built with
// (models/extension/extension.h).
//
// An own enumerator follows the built-in ones, in the order in which names are added. An enum that is open to own names
// runs from 0 without gaps, specialises kBuiltIn, and its Name(value) is "?" beyond the last. Names are added at the
// start of a program and frozen once read (models/registry.h); views of them stay valid.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/registry.h"
#include "models/status.h"
#include "models/text.h"

namespace moeplan {

// How many enumerators are built in.
template <typename Enum>
inline constexpr int kBuiltIn = 0;
template <typename Enum>
inline constexpr bool kIsOpen = kBuiltIn<Enum> != 0;

// kInvalidInput unless `name` could be one of the contract's: 2 to 32 capitals, digits and underscores, a capital
// first.
Status CheckOwnName(std::string_view name);

template <typename Enum>
class OwnNames {
 public:
  // Requires RegistriesOpen, and a name that CheckOwnName and NamedValue<Enum> have let pass.
  static Enum Add(std::string name) {
    names().Add(std::move(name));
    return static_cast<Enum>(kBuiltIn<Enum> + count() - 1);
  }

  static int count() { return static_cast<int>(names().size()); }

  // The place of an own value among the own ones; negative for a built-in one.
  static int IndexOf(Enum value) { return static_cast<int>(value) - kBuiltIn<Enum>; }

  // "?" unless `value` is an own one.
  static std::string_view NameOf(Enum value) {
    const int index = IndexOf(value);
    return index >= 0 && index < count() ? std::string_view(names().At(index)) : "?";
  }

 private:
  static Registry<std::string>& names() {
    static Registry<std::string> own;
    return own;
  }
};

// All enumerators, built in and own, from `first` on.
template <typename Enum>
std::vector<Enum> AllFrom(Enum first) {
  std::vector<Enum> all;
  for (int value = static_cast<int>(first); value < kBuiltIn<Enum> + OwnNames<Enum>::count(); ++value) {
    all.push_back(static_cast<Enum>(value));
  }
  return all;
}

// The enumerator of that name. For every enum that runs from 0 without gaps, open or not.
template <typename Enum>
std::optional<Enum> NamedValue(std::string_view name) {
  for (int value = 0; Name(static_cast<Enum>(value)) != "?"; ++value) {
    if (Name(static_cast<Enum>(value)) == name) return static_cast<Enum>(value);
  }
  return std::nullopt;
}

// Adds `name`; kInvalidInput, with `what` the name is of ("codec"), when it is none or is taken, or
// when registries are frozen. Call it within a Registration.
template <typename Enum>
StatusOr<Enum> AddOwnName(const std::string& name, std::string_view what) {
  RETURN_IF_ERROR(CheckOwnName(name).Within(what));
  if (NamedValue<Enum>(name)) {
    return InvalidInput(StrCat(what, ": found ", name, " a second time, expected a name of its own"));
  }
  RETURN_IF_ERROR(RegistriesOpen(StrCat(what, " ", name)));
  return OwnNames<Enum>::Add(name);
}

}  // namespace moeplan
