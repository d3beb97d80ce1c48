#include "cli/warnings.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>

#include "models/text.h"

namespace moeplan::cli {
namespace {

constexpr size_t kMostLines = 10;

// What a warning says, without the cost that it says it of and without numbers.
std::string KindOf(const std::string& warning) {
  const size_t colon = warning.find(": ");
  std::string kind;
  for (const char c : warning.substr(colon == std::string::npos ? 0 : colon)) {
    if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.') kind += c;
  }
  return kind;
}

}  // namespace

std::vector<std::string> GroupedWarnings(const std::vector<std::string>& warnings) {
  struct Group {
    std::string first;
    int count = 0;
  };
  std::map<std::string, Group> by_kind;
  for (const std::string& warning : warnings) {
    Group& group = by_kind[KindOf(warning)];
    if (group.count++ == 0) group.first = warning;
  }
  std::vector<Group> groups;
  for (const auto& [kind, group] : by_kind) groups.push_back(group);
  std::ranges::stable_sort(groups, std::greater(), &Group::count);
  std::vector<std::string> lines;
  for (const Group& group : groups) {
    if (lines.size() + 1 == kMostLines && groups.size() > kMostLines) {
      lines.push_back(StrCat(groups.size() - lines.size(), " more kinds, which --json lists"));
      break;
    }
    lines.push_back(group.count == 1 ? group.first
                                     : StrCat(group.first, " (and ", group.count - 1, " more of that kind)"));
  }
  return lines;
}

void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& line : GroupedWarnings(warnings)) std::fprintf(stderr, "warning: %s\n", line.c_str());
}

}  // namespace moeplan::cli
