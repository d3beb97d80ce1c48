#include "cli/read_layout.h"

#include "cli/options.h"
#include "proto/convert/step.h"

namespace moeplan::cli {

StatusOr<v1::StepLayout> ReadLayout(const std::string& value, const char* option) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && value[first] == '{') return StepLayoutFromJson(value, option);
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(value, "a layout as JSON"));
  return StepLayoutFromJson(text, value);
}

}  // namespace moeplan::cli
