#include "proto/errors.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "proto/enum_names.h"

namespace moeplan {
namespace {

std::string Folded(std::string_view name) {
  std::string folded;
  for (const unsigned char c : name) {
    if (c != '_' && c != '-') folded += static_cast<char>(std::tolower(c));
  }
  return folded;
}

// Levenshtein's.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->json_name());
  return names;
}

// The name that was likely meant, or an empty one.
std::string Nearest(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kLongestName = 64;
  if (name.size() > kLongestName) return {};
  std::string nearest;
  size_t nearest_distance = 3;  // A slip is one or two letters.
  for (const std::string& candidate : names) {
    const size_t distance = EditDistance(Folded(name), Folded(candidate));
    if (distance < nearest_distance && distance < candidate.size() / 2 + 1) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace

std::string CommaList(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

namespace error {

Status Mismatch(std::string_view path, std::string_view found, std::string_view expected) {
  return InvalidInput(StrCat(path, path.empty() ? "" : ": ", "found ", found, ", expected ", expected));
}

Status UnknownField(std::string_view path, std::string_view name, const google::protobuf::Descriptor& type) {
  const std::vector<std::string> names = FieldNames(type);
  const std::string nearest = Nearest(name, names);
  const std::string hint = nearest.empty() ? "" : StrCat(" (did you mean ", nearest, "?)");
  return InvalidInput(
      StrCat(FieldPath(path, name), ": found an unknown field", hint, ", expected one of ", CommaList(names)));
}

Status UnknownEnum(std::string_view path, std::string_view found, const google::protobuf::EnumDescriptor& type) {
  return Mismatch(path, found, StrCat("one of ", CommaList(EnumNames(type))));
}

}  // namespace error
}  // namespace moeplan
