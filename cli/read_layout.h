// A layout that an option gives: JSON as it stands, or the name of a file that has it.
#pragma once

#include <string>

#include "models/status.h"
#include "moeplan/v1/step.pb.h"

namespace moeplan::cli {

// `option` names it in errors. Errors: those of StepLayoutFromJson, and kNotFound for a file that is not there.
StatusOr<v1::StepLayout> ReadLayout(const std::string& value, const char* option);

}  // namespace moeplan::cli
