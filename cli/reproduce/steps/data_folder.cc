#include "cli/reproduce/steps/data_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "models/text.h"
#include "proto/json.h"

namespace moeplan::cli {

namespace fs = std::filesystem;

StatusOr<DataFolder> DataFolder::Open(std::string path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return DataFolder(std::move(path));
  return NotFound(StrCat("--data: found no folder '", path, "', expected one with measurements of training steps"));
}

bool DataFolder::Has(std::string_view name) const {
  std::error_code error;
  return fs::is_regular_file(fs::path(path_) / name, error);
}

std::vector<std::string> DataFolder::Names(std::string_view begin, std::string_view end) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end)) {
      names.push_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

StatusOr<std::string> DataFolder::Text(std::string_view name) const {
  return ReadTextFile((fs::path(path_) / name).string(), "measurements");
}

StatusOr<CsvTable> DataFolder::Table(std::string_view name) const {
  ASSIGN_OR_RETURN(const std::string text, Text(name));
  return CsvTable::Parse(text, std::string(name));
}

}  // namespace moeplan::cli
