// Commands take a model by the name of one that ships or by its file.
#pragma once

#include <string>
#include <string_view>

#include "models/model/model_config.h"
#include "models/status.h"

namespace moeplan::cli {

// The model of that name or, where none ships, of that file, and its text. kInvalidInput: neither, and the message,
// which begins with the option, lists the names.
StatusOr<ModelConfig> ModelOf(const std::string& name_or_file, std::string_view option = "--model");
StatusOr<std::string> ModelTextOf(const std::string& name_or_file, std::string_view option = "--model");

}  // namespace moeplan::cli
