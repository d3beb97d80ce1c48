// The JSON files of deploy/ that are part of the program: testbeds, hardware and models, as the build found them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan::planner {

struct ShippedFile {
  std::string_view path;  // Below deploy, such as "testbeds/grids/parm-a.json".
  std::string_view text;
};
extern const std::span<const ShippedFile> kShippedFiles;

// kNotFound: there is none of that path.
StatusOr<std::string_view> ShippedText(std::string_view path);

// "a100-pcie" of "hardware/a100-pcie.json", of all files in a folder, sorted.
std::vector<std::string> ShippedNames(std::string_view folder);

}  // namespace moeplan::planner
