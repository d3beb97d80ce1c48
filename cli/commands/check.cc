#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/launch_text.h"
#include "cli/options.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/messages/targets.h"
#include "planner/shipped/names.h"
#include "planner/targets/layout_fields.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct CheckCommandOptions {
  std::string to, arguments, config, model, version;
  int gpus = 0;
  bool json = false;
};

// Without fields that are at their defaults.
std::string LayoutInBrief(const v1::StepLayout& layout) {
  nlohmann::json brief = nlohmann::json::object();
  const auto whole = nlohmann::json::parse(ToJson(layout, JsonStyle::kCompact));
  for (const auto& [field, value] : whole.items()) {
    const nlohmann::json* const usual = planner::DefaultOf(field);
    if (field != "plan" && (usual == nullptr || *usual != value)) brief[field] = value;
  }
  return brief.dump();
}

void PrintChecked(const v1::CheckedSettings& checked) {
  for (const v1::BrokenRule& broken : checked.violations()) {
    std::string flags;
    for (const std::string& flag : broken.flags()) flags += StrCat(flags.empty() ? "" : ", ", flag);
    std::printf("%s: %s\n", broken.rule().c_str(), broken.reason().c_str());
    if (!flags.empty()) std::printf("  %s\n", flags.c_str());
    if (!broken.source().empty()) std::printf("  %s\n", broken.source().c_str());
  }
  if (checked.valid()) std::printf("valid%s\n", checked.warnings().empty() ? "" : ", as far as it was read");
  std::printf("layout: %s\n", LayoutInBrief(checked.layout()).c_str());
  PrintWarnings({checked.warnings().begin(), checked.warnings().end()});
}

Status Run(const CheckCommandOptions& options) {
  if (options.arguments.empty() == options.config.empty()) {
    return InvalidInput(options.config.empty() ? "check: expected --arguments or --config"
                                               : "check: found --arguments and --config, expected one of them");
  }
  ASSIGN_OR_RETURN(
      const v1::CheckedSettings checked,
      options.config.empty()
          ? CheckArguments(options.to, options.version, options.arguments, options.model, {.gpus = options.gpus})
          : CheckConfig(options.to, options.version, options.config, options.model, {.gpus = options.gpus}));
  if (options.json) {
    PrintJson(checked);
  } else {
    PrintChecked(checked);
  }
  if (checked.valid()) return OkStatus();
  return Infeasible(StrCat(options.to, " refuses the settings: ", checked.violations_size(),
                           checked.violations_size() == 1 ? " rule is broken" : " rules are broken"));
}

}  // namespace

void AddCheck(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<CheckCommandOptions>();
  CLI::App* command = AddCommand(app, invocation, "check", "Check settings of a training system by its own rules",
                                 "moeplan check --to megatron --gpus 64 --model mixtral-8x7b --arguments "
                                 "\"--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall\"",
                                 [options] { return Run(*options); });
  command->add_option("--to", options->to, StrCat("One of ", planner::TargetNamesText()))->required();
  command->add_option("--arguments", options->arguments,
                      "The arguments of a launch script, or the script; what is no setting of the system is skipped");
  command->add_option("--config", options->config, "A configuration file of the training system");
  command->add_option("--gpus", options->gpus, "How many GPUs, so that rules about them are checked");
  command->add_option("--model", options->model, "config.json of a Hugging Face model, or the name of one that ships");
  command->add_option("--target-version", options->version,
                      "The version of the training system (default: the latest known)");
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace moeplan::cli
