#include "cli/launch_text.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/messages/targets.h"
#include "planner/shipped/names.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct Asked {
  planner::Target target;
  planner::Facts facts;
  std::optional<ModelConfig> model;
};

StatusOr<Asked> AskedOf(const std::string& target, const std::string& version, const std::string& model,
                        const planner::LaunchNumbers& numbers) {
  Asked asked;
  StatusOr<planner::Target> found = planner::TargetOf(target, version);
  if (!found.ok()) return AsOption(found.status());
  asked.target = *std::move(found);
  if (!model.empty()) {
    ASSIGN_OR_RETURN(asked.model, ModelOf(model));
  }
  if (numbers.gpus < 0) return InvalidInput(StrCat("--gpus: found ", numbers.gpus, ", expected at least 1"));
  asked.facts = asked.model ? planner::FactsOf(*asked.model, numbers) : planner::FactsOf(numbers);
  return asked;
}

// A value as a layout has it.
std::string Plain(const v1::NotExpressible& one) {
  const nlohmann::json whole = nlohmann::json::parse(ToJson(one, JsonStyle::kCompact));
  return whole.contains("value") ? whole["value"].dump() : "";
}

// In lines of at most so many characters, as a shell takes them.
std::string ArgumentLines(const google::protobuf::RepeatedPtrField<std::string>& arguments, size_t width) {
  const auto quoted = [](const std::string& token) {
    constexpr std::string_view kOfShell = " ()|*[]{}<>&;$\"'\\?!#~`";
    return token.find_first_of(kOfShell) == std::string::npos ? token : StrCat("'", token, "'");
  };
  std::string text;
  size_t column = 0;
  for (int i = 0; i < arguments.size(); ++i) {
    // A value stays on its flag's line.
    std::string piece = quoted(arguments.Get(i));
    const bool of_flags = piece.starts_with("--");
    while (of_flags && i + 1 < arguments.size() && !arguments.Get(i + 1).starts_with("--")) {
      piece += StrCat(" ", quoted(arguments.Get(++i)));
    }
    if (column > 0 && column + piece.size() + 3 > width) {
      text += " \\\n  ";
      column = 2;
    } else if (column > 0) {
      text += " ";
      ++column;
    }
    text += piece;
    column += piece.size();
  }
  return text;
}

}  // namespace

StatusOr<v1::ExportedLayout> ExportTo(const std::string& target, const std::string& version, v1::StepLayout layout,
                                      const std::string& model, const planner::LaunchNumbers& numbers) {
  ASSIGN_OR_RETURN(const Asked asked, AskedOf(target, version, model, numbers));
  if (asked.model) return planner::Export(asked.target, std::move(layout), *asked.model, numbers);
  return planner::Export(asked.target, layout, asked.facts);
}

StatusOr<std::string> TextOrFile(const std::string& text_or_file, std::string_view expected) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(text_or_file, ignored)) return text_or_file;
  return ReadTextFile(text_or_file, expected);
}

StatusOr<v1::CheckedSettings> CheckArguments(const std::string& target, const std::string& version,
                                             const std::string& arguments, const std::string& model,
                                             const planner::LaunchNumbers& numbers) {
  ASSIGN_OR_RETURN(const Asked asked, AskedOf(target, version, model, numbers));
  ASSIGN_OR_RETURN(const std::string text, TextOrFile(arguments, "arguments, or the script that has them"));
  const StatusOr<planner::SettingsRead> read = planner::ReadArguments(asked.target, text);
  if (!read.ok()) return read.status().Within("--arguments");
  return planner::Check(asked.target, *read, asked.facts);
}

StatusOr<v1::CheckedSettings> CheckConfig(const std::string& target, const std::string& version,
                                          const std::string& config, const std::string& model,
                                          const planner::LaunchNumbers& numbers) {
  ASSIGN_OR_RETURN(const Asked asked, AskedOf(target, version, model, numbers));
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(config, "a configuration file"));
  ASSIGN_OR_RETURN(const planner::SettingsRead read, planner::ReadConfig(asked.target, text, config));
  return planner::Check(asked.target, read, asked.facts);
}

std::string ExportText(const v1::ExportedLayout& exported, Arguments arguments) {
  constexpr size_t kWidth = 78;
  std::string text;
  for (const auto& [name, value] : exported.environment().fields()) {
    text += StrCat("export ", name, "=", value.string_value(), "\n");
  }
  if (exported.arguments().empty() && arguments == Arguments::kAll) {
    text += exported.config();
  } else {
    const auto& wanted = arguments == Arguments::kAll ? exported.arguments() : exported.layout_arguments();
    text += ArgumentLines(wanted, kWidth) + "\n";
  }
  for (const v1::NotExpressible& one : exported.not_expressible()) {
    text += StrCat("# not said: ", one.field(), " ", Plain(one), ": ", one.reason(), "\n");
  }
  for (const v1::BrokenRule& broken : exported.violations()) {
    text += StrCat("# refused: ", broken.rule(), ": ", broken.reason(), "\n");
  }
  return text;
}

void PrintExport(const v1::ExportedLayout& exported) {
  std::fputs(ExportText(exported, Arguments::kAll).c_str(), stdout);
  PrintWarnings({exported.warnings().begin(), exported.warnings().end()});
}

}  // namespace moeplan::cli
