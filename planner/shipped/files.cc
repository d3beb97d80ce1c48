#include "planner/shipped/files.h"

#include <algorithm>

#include "models/text.h"

namespace moeplan::planner {

StatusOr<std::string_view> ShippedText(std::string_view path) {
  const auto found = std::ranges::find(kShippedFiles, path, &ShippedFile::path);
  if (found == kShippedFiles.end()) return NotFound(StrCat("deploy has no ", path));
  return found->text;
}

std::vector<std::string> ShippedNames(std::string_view folder) {
  constexpr std::string_view kEnd = ".json";
  const std::string begin = StrCat(folder, "/");
  std::vector<std::string> names;
  for (const ShippedFile& file : kShippedFiles) {
    const std::string_view path = file.path;
    if (!path.starts_with(begin) || path.find('/', begin.size()) != std::string_view::npos) continue;
    names.emplace_back(path.substr(begin.size(), path.size() - begin.size() - kEnd.size()));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace moeplan::planner
