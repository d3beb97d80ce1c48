#include "cli/launch_text.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/known_names.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/layout/stages.h"
#include "planner/messages/targets.h"
#include "planner/targets/facts.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct Asked {
  planner::Target target;
  planner::Facts facts;
  std::optional<ModelConfig> model;
};

void AddNumbers(const LaunchNumbers& numbers, planner::Facts& facts) {
  const std::pair<const char*, int> named[] = {
      {"gpus", numbers.gpus}, {"global_batch", numbers.global_batch}, {"sequence_length", numbers.sequence_length}};
  for (const auto& [name, number] : named) {
    if (number > 0) facts.emplace(name, number);
  }
}

StatusOr<Asked> AskedOf(const std::string& target, const std::string& version, const std::string& model,
                        const LaunchNumbers& numbers) {
  Asked asked;
  ASSIGN_OR_RETURN(asked.target, TargetOf(target, version));
  if (!model.empty()) {
    ASSIGN_OR_RETURN(asked.model, ModelOf(model));
    asked.facts = planner::FactsOf(*asked.model);
  }
  if (numbers.gpus < 0) return InvalidInput(StrCat("--gpus: found ", numbers.gpus, ", expected at least 1"));
  AddNumbers(numbers, asked.facts);
  return asked;
}

// Frameworks deal layers out evenly or not at all: whatever does not divide is said stage by stage.
void SetStages(const ModelConfig& model, v1::StepLayout& layout) {
  const int pipeline = layout.has_pipeline_parallel() ? layout.pipeline_parallel() : 1;
  const int rounds = layout.has_virtual_stages() ? layout.virtual_stages() : 1;
  const long long stages = 1LL * pipeline * rounds;
  if (pipeline < 2 || rounds < 1 || !layout.stages().empty() || stages > model.layers()) return;
  // A layer that predicts a further token is one more on the last stage, which only a layout of stages can say.
  if (model.layers() % stages == 0 && layout.mtp_layers() == 0) return;
  LayoutRequest request;
  request.model = model;
  request.virtual_stages = rounds;
  request.next_tokens = layout.mtp_layers();
  for (const int layers : planner::LayersOfStages(request, pipeline)) layout.add_stages(layers);
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

planner::Facts FactsOf(const ModelConfig& model, const LaunchNumbers& numbers) {
  planner::Facts facts = planner::FactsOf(model);
  AddNumbers(numbers, facts);
  return facts;
}

StatusOr<v1::ExportedLayout> ExportTo(const std::string& target, const std::string& version, v1::StepLayout layout,
                                      const std::string& model, const LaunchNumbers& numbers) {
  ASSIGN_OR_RETURN(const Asked asked, AskedOf(target, version, model, numbers));
  if (asked.model) SetStages(*asked.model, layout);
  return planner::Export(asked.target, layout, asked.facts);
}

v1::ExportedLayout ExportTo(const planner::Target& target, v1::StepLayout layout, const ModelConfig& model,
                            const LaunchNumbers& numbers) {
  SetStages(model, layout);
  return planner::Export(target, layout, FactsOf(model, numbers));
}

StatusOr<std::string> TextOrFile(const std::string& text_or_file, std::string_view expected) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(text_or_file, ignored)) return text_or_file;
  return ReadTextFile(text_or_file, expected);
}

StatusOr<v1::CheckedSettings> CheckArguments(const std::string& target, const std::string& version,
                                             const std::string& arguments, const std::string& model,
                                             const LaunchNumbers& numbers) {
  ASSIGN_OR_RETURN(const Asked asked, AskedOf(target, version, model, numbers));
  ASSIGN_OR_RETURN(const std::string text, TextOrFile(arguments, "arguments, or the script that has them"));
  const StatusOr<planner::SettingsRead> read = planner::ReadArguments(asked.target, text);
  if (!read.ok()) return read.status().Within("--arguments");
  return planner::Check(asked.target, *read, asked.facts);
}

StatusOr<v1::CheckedSettings> CheckConfig(const std::string& target, const std::string& version,
                                          const std::string& config, const std::string& model,
                                          const LaunchNumbers& numbers) {
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
