// From a layout to a target's settings and back, with what the target refuses: `moeplan export` and `moeplan check`.
//
// Layouts are JSON objects of moeplan.v1.StepLayout's fields; an absent field has its default (layout_fields.h). Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/targets/settings_text.h"
#include "planner/targets/target.h"

namespace moeplan::planner {

// A warning's rule where the settings repeat a fact of the question with another value.
inline constexpr const char* kOtherQuestion = "other-question";
// And where they say what no layout can.
inline constexpr const char* kNotRead = "not-read";

struct CheckedSettings {
  std::vector<Violation> violations;
  std::vector<Violation> warnings;  // The target goes on, and does something else.
  nlohmann::json layout;            // What the settings say, for `moeplan step`.
};

// The rules of the target on settings, defaults and facts; a rule that asks for a number that nobody gave is not
// checked. Violations of values, which ReadArguments found, are not repeated.
CheckedSettings CheckSettings(const Target& target, const Settings& settings, const Facts& facts);

struct NotExpressible {
  std::string field;
  nlohmann::json value;
  std::string reason;
};

struct ExportedLayout {
  Settings settings;
  Settings of_layout;  // Those of them that say the layout; the others are the model's, or what every export carries.
  std::map<std::string, std::string> environment;
  std::vector<NotExpressible> not_expressible;
  CheckedSettings checked;  // Of these settings.
};

// Settings of `mine` that must go where `wanted` is added behind them: those that say a layout, are not said by
// `wanted`, and would have another value by default.
Settings ToRemove(const Target& target, const Settings& mine, const Settings& wanted, const Facts& facts);

// What says the layout, what every export carries, and the facts that the target's settings repeat.
ExportedLayout ExportLayout(const Target& target, const nlohmann::json& layout, const Facts& facts);

}  // namespace moeplan::planner
