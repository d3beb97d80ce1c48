#include "cli/read_layout.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "cli/options.h"
#include "models/text.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/enum_names.h"

namespace moeplan::cli {

StatusOr<v1::StepLayout> ReadLayout(const std::string& value, const char* option) {
  ASSIGN_OR_RETURN(const GivenJson given, JsonOrFile(value, option, "a layout as JSON"));
  return StepLayoutFromJson(given.text, given.source_name);
}

StatusOr<Precision> ReadPrecision(const std::string& value) {
  std::string name = value;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const std::optional<int> number = EnumNumber(*v1::Precision::Kind_descriptor(), name);
  if (!number) return InvalidInput(StrCat("--precision: found '", value, "', expected BF16, FP8, MXFP8 or NVFP4"));
  return EnumFromProto<Precision>(static_cast<v1::Precision::Kind>(*number), "--precision");
}

}  // namespace moeplan::cli
