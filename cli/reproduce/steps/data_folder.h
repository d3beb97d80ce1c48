// The folder that measurements of others are read from.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/csv.h"
#include "models/status.h"

namespace moeplan::cli {

class DataFolder {
 public:
  // kNotFound: there is no such folder.
  static StatusOr<DataFolder> Open(std::string path);

  bool Has(std::string_view name) const;
  // Names that begin and end so, sorted; a part of a name counts once.
  std::vector<std::string> Names(std::string_view begin, std::string_view end) const;
  StatusOr<std::string> Text(std::string_view name) const;
  StatusOr<CsvTable> Table(std::string_view name) const;

 private:
  explicit DataFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace moeplan::cli
