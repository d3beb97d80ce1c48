// Libraries of what a user adds to moeplan (models/extension/extension.h).
#pragma once

#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::cli {

// Loads a library and lets it add what it has, once however often it is named. kInvalidInput when `path` is no such
// library or was compiled against another version, and with the library's own error. What it had added until then
// stays: give up after an error. Before any other thread runs.
Status LoadExtension(const std::string& path);
// The absolute paths of those loaded, for processes that shall have the same.
const std::vector<std::string>& LoadedExtensions();

}  // namespace moeplan::cli
