// A layout that an option gives: JSON as it stands, or the name of a file that has it.
#pragma once

#include <string>

#include "models/layout/layout_answer.h"
#include "models/status.h"
#include "moeplan/v1/step.pb.h"

namespace moeplan::cli {

// `option` names it in errors. Errors: those of StepLayoutFromJson, and kNotFound for a file that is not there.
StatusOr<v1::StepLayout> ReadLayout(const std::string& value, const char* option);

// Reads --precision, in either case of letters. kInvalidInput: it is none.
StatusOr<Precision> ReadPrecision(const std::string& value);

}  // namespace moeplan::cli
