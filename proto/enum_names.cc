#include "proto/enum_names.h"

#include <algorithm>
#include <map>

#include "models/cost/operation.h"
#include "models/fnv1a.h"
#include "models/schedule/knobs.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/workload.pb.h"

namespace moeplan {
namespace {

using google::protobuf::EnumDescriptor;

template <typename Enum>
std::vector<std::string> OwnNamesOf() {
  std::vector<std::string> names;
  for (const Enum own : AllFrom(static_cast<Enum>(kBuiltIn<Enum>))) names.emplace_back(Name(own));
  return names;
}

// None for a type that is closed.
std::vector<std::string> OwnNamesOfType(const EnumDescriptor& type) {
  static const std::map<const EnumDescriptor*, std::vector<std::string> (*)()> kOpenTypes = {
      {v1::AllToAll::Algorithm_descriptor(), OwnNamesOf<AllToAllAlgorithm>},
      {v1::Codec::Kind_descriptor(), OwnNamesOf<Codec>},
      {v1::Expert::Kind_descriptor(), OwnNamesOf<ExpertKind>},
      {v1::Kernel::Kind_descriptor(), OwnNamesOf<Kernel>},
      {v1::Schedule::Family_descriptor(), OwnNamesOf<Family>}};
  const auto open = kOpenTypes.find(&type);
  return open == kOpenTypes.end() ? std::vector<std::string>() : open->second();
}

}  // namespace

int OwnNumber(std::string_view name) {
  constexpr uint64_t kLowest = 1'000'000, kCount = 1'000'000'000;
  Fnv1a digest;
  digest.Add(name);
  return static_cast<int>(kLowest + digest.value() % kCount);
}

std::vector<std::string> EnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->name() != "UNSPECIFIED") names.push_back(type.value(i)->name());
  }
  std::ranges::move(OwnNamesOfType(type), std::back_inserter(names));
  return names;
}

std::optional<int> EnumNumber(const EnumDescriptor& type, const std::string& name) {
  if (const auto* value = type.FindValueByName(name)) return value->number();
  for (const std::string& own : OwnNamesOfType(type)) {
    if (own == name) return OwnNumber(own);
  }
  return std::nullopt;
}

std::optional<std::string> EnumName(const EnumDescriptor& type, int number) {
  if (const auto* value = type.FindValueByNumber(number)) return value->name();
  for (const std::string& own : OwnNamesOfType(type)) {
    if (OwnNumber(own) == number) return own;
  }
  return std::nullopt;
}

}  // namespace moeplan
