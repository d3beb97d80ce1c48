// What the build wrote down of deploy/testbeds (cli/CMakeLists.txt).
#pragma once

#include <span>
#include <string_view>

namespace moeplan::cli {

struct TestbedFile {
  std::string_view path;  // Below deploy/testbeds, such as "grids/parm-a.json".
  std::string_view text;
};
extern const std::span<const TestbedFile> kTestbedFiles;

}  // namespace moeplan::cli
