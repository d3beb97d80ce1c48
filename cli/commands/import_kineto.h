// `moeplan import kineto`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace moeplan::cli {

void AddImportKineto(CLI::App& import, Invocation& invocation);

}  // namespace moeplan::cli
