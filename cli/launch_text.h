// Layouts as settings of a training system, and the other way, as commands ask for them.
#pragma once

#include <string>
#include <string_view>

#include "models/status.h"
#include "moeplan/v1/step.pb.h"
#include "moeplan/v1/target.pb.h"
#include "planner/messages/targets.h"

namespace moeplan::cli {

// `model` names one (ModelOf); empty: none is known. Stages that come out uneven are told one by one. Errors are those
// of TargetOf and ModelOf.
StatusOr<v1::ExportedLayout> ExportTo(const std::string& target, const std::string& version, v1::StepLayout layout,
                                      const std::string& model, const planner::LaunchNumbers& numbers);

// Gives the text of an option, or that of the file it names. `expected` is as in ReadTextFile.
StatusOr<std::string> TextOrFile(const std::string& text_or_file, std::string_view expected);

// `arguments` are the text itself or a file that has it, `config` the name of a file. Errors also: those of
// ReadArguments and ReadConfig.
StatusOr<v1::CheckedSettings> CheckArguments(const std::string& target, const std::string& version,
                                             const std::string& arguments, const std::string& model,
                                             const planner::LaunchNumbers& numbers);
StatusOr<v1::CheckedSettings> CheckConfig(const std::string& target, const std::string& version,
                                          const std::string& config, const std::string& model,
                                          const planner::LaunchNumbers& numbers);

// Arguments or the file, then what they do not say. Without the model's own arguments where only those of the layout
// are wanted.
enum class Arguments { kAll, kOfLayout };
std::string ExportText(const v1::ExportedLayout& exported, Arguments arguments);
// The same, with warnings.
void PrintExport(const v1::ExportedLayout& exported);

}  // namespace moeplan::cli
