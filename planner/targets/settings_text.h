// Settings of a target as people write them: arguments of a command, and configuration files. Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"
#include "planner/targets/target.h"

namespace moeplan::planner {

// By name; what is not in it is not set.
using Settings = std::map<std::string, nlohmann::json, std::less<>>;

// What a target refuses, or would do otherwise than it was told.
struct Violation {
  std::string rule;
  std::vector<std::string> flags;  // As the target spells them, such as "--pipeline-model-parallel-size 4".
  std::string reason;
  std::string source;  // Target::Cite; empty: no target has anything of the kind.

  friend bool operator==(const Violation&, const Violation&) = default;
};

struct SettingsRead {
  Settings settings;
  std::vector<Violation> violations;  // Values that their settings cannot have, under the rule "value".
  std::vector<std::string> unknown;   // Names that the table does not have, each once; their values were skipped.
};

// At most so much is read.
inline constexpr size_t kMostSettingsBytes = 1 << 20;

// Arguments as a shell script has them: quotes, comments and lines that go on are understood, and whatever stands
// before the first setting (an interpreter, a launcher, a script) is skipped, as are settings that the table does not
// know. Of a setting that is given twice the last counts. kInvalidInput: it is too long, a quote has no end, or the
// target takes no arguments.
StatusOr<SettingsRead> ReadArguments(const Target& target, std::string_view text);

// A configuration file of the target: YAML of kOverrides and kFlags (there under MODEL_ARGS, as Megatron's own tests
// have it, or on top), JSON of kJson, lines of Python of the others, in which `name = value` count. kInvalidInput: it
// is too long, or not of that form.
StatusOr<SettingsRead> ReadConfig(const Target& target, std::string_view text, std::string_view source_name);

// One token without spaces each, in the table's order. Empty where the target takes no arguments.
std::vector<std::string> WriteArguments(const Target& target, const Settings& settings);
// The same as a file that ReadConfig reads.
std::string WriteConfig(const Target& target, const Settings& settings);

// What a value of the setting would be; empty: this is one.
std::string ExpectedOf(const Setting& setting, const nlohmann::json& value);

// One setting as the target spells it; "" for a flag that has no spelling of its default.
std::string Spelling(const Target& target, std::string_view setting, const nlohmann::json& value);

}  // namespace moeplan::planner
