// Exported layouts and checked settings as messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "moeplan/v1/step.pb.h"
#include "moeplan/v1/target.pb.h"
#include "planner/targets/settings_text.h"
#include "planner/targets/target.h"
#include "planner/targets/translate.h"

namespace moeplan::planner {

// The layout, as far as it goes, in the settings of the target.
v1::ExportedLayout Export(const Target& target, const v1::StepLayout& layout, const Facts& facts);

// kInternal: the table says a layout that no message can hold, which is a defect of the table.
StatusOr<v1::CheckedSettings> Check(const Target& target, const SettingsRead& read, const Facts& facts);

}  // namespace moeplan::planner
