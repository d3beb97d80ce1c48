#include "cli/named_model.h"

#include <filesystem>
#include <system_error>

#include "models/model/hf_config.h"
#include "models/text.h"
#include "planner/shipped/names.h"
#include "proto/json.h"

namespace moeplan::cli {

StatusOr<std::string> ModelTextOf(const std::string& name_or_file, std::string_view option) {
  const auto shipped = planner::NamedModelText(name_or_file);
  if (shipped.ok()) return std::string(*shipped);
  std::error_code ignored;
  if (std::filesystem::exists(name_or_file, ignored)) return ReadTextFile(name_or_file);
  return InvalidInput(StrCat(option, ": found '", name_or_file,
                             "', which is no file, expected a config.json or one of ", planner::ModelNamesText()));
}

StatusOr<ModelConfig> ModelOf(const std::string& name_or_file, std::string_view option) {
  ASSIGN_OR_RETURN(const std::string text, ModelTextOf(name_or_file, option));
  return ModelFromHfConfig(text, name_or_file);
}

}  // namespace moeplan::cli
