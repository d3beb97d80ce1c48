#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/compare/trace.h"
#include "cli/command.h"
#include "cli/launch_text.h"
#include "cli/options.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/layout/stages.h"
#include "planner/messages/targets.h"
#include "planner/shipped/names.h"
#include "planner/targets/facts.h"
#include "proto/convert/step.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct ExportCommandOptions {
  std::string plan, layout, to, model, version;
  int gpus = 0;
  bool json = false;
};

// A plan's own layout and knobs, from an answer of `moeplan plan --json`.
StatusOr<v1::StepLayout> LayoutOfPlan(const std::string& path) {
  ASSIGN_OR_RETURN(const auto response, ReadJsonFile<v1::PlanResponse>(path));
  if (!response.has_best())
    return InvalidInput(StrCat(path, ": best: expected a plan, as `moeplan plan --json` prints it"));
  const v1::Workload& workload = response.workload();
  v1::StepLayout layout;
  layout.set_tensor_parallel(workload.layout().tensor_parallel());
  layout.set_expert_parallel(workload.layout().expert_parallel());
  layout.set_expert_sharding_parallel(workload.layout().expert_sharding_parallel());
  layout.set_context_parallel(workload.layout().context_parallel());
  layout.set_pipeline_parallel(workload.layout().pipeline_parallel());
  layout.set_micro_batch(workload.layer().batch());
  layout.set_capacity_factor(workload.layer().capacity_factor());
  layout.set_schedule(response.best().schedule());
  layout.mutable_plan()->set_schedule(response.best().schedule());
  layout.mutable_plan()->set_chunks(response.best().chunks());
  layout.mutable_plan()->set_partition_degree(response.best().partition_degree());
  return layout;
}

// The timeline that the plan is predicted to have.
StatusOr<v1::ExportedLayout> TraceOfPlan(const std::string& path) {
  if (path.empty()) {
    return InvalidInput(
        "--to: found perfetto with --layout, expected it with --plan; `moeplan step --trace` writes a layout's");
  }
  ASSIGN_OR_RETURN(const auto response, ReadJsonFile<v1::PlanResponse>(path));
  if (response.best().timeline().empty()) return InvalidInput(StrCat(path, ": best.timeline: expected tasks"));
  v1::ExportedLayout exported;
  exported.set_target("perfetto");
  exported.set_target_version("Trace Event Format");
  exported.mutable_environment();
  exported.set_config(agent::ChromeTrace({}, response.best(), {}));
  return exported;
}

Status Run(const ExportCommandOptions& options) {
  if (options.plan.empty() == options.layout.empty()) {
    return InvalidInput(options.plan.empty() ? "export: expected --plan or --layout"
                                             : "export: found --plan and --layout, expected one of them");
  }
  if (options.to == "perfetto") {
    ASSIGN_OR_RETURN(const v1::ExportedLayout trace, TraceOfPlan(options.plan));
    if (options.json) {
      PrintJson(trace);
    } else {
      std::printf("%s\n", trace.config().c_str());
    }
    return OkStatus();
  }
  v1::StepLayout layout;
  if (options.plan.empty()) {
    ASSIGN_OR_RETURN(layout, ReadLayout(options.layout, "--layout"));
  } else {
    ASSIGN_OR_RETURN(layout, LayoutOfPlan(options.plan));
  }
  ASSIGN_OR_RETURN(const v1::ExportedLayout exported,
                   ExportTo(options.to, options.version, layout, options.model, {.gpus = options.gpus}));
  if (options.json) {
    PrintJson(exported);
  } else {
    PrintExport(exported);
  }
  if (exported.violations().empty()) return OkStatus();
  return Infeasible(StrCat(exported.target(), " refuses the layout: ", exported.violations(0).rule(), ": ",
                           exported.violations(0).reason()));
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<ExportCommandOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "export", "Say a layout or a plan in the settings of a training system",
                 "moeplan export --layout '{\"expertParallel\": 8}' --to megatron --model mixtral-8x7b "
                 "--gpus 64",
                 [options] { return Run(*options); });
  command->add_option("--plan", options->plan, "An answer of `moeplan plan --json`");
  command->add_option("--layout", options->layout, "JSON, or its file: a layout, or a row of `moeplan layout --json`");
  command
      ->add_option("--to", options->to,
                   StrCat("One of ", planner::TargetNamesText(), ", or perfetto (a plan's timeline as a trace)"))
      ->required();
  command->add_option("--model", options->model,
                      "config.json of a Hugging Face model, or the name of one that ships: adds its dimensions");
  command->add_option("--gpus", options->gpus, "How many GPUs, so that rules about them are checked");
  command->add_option("--target-version", options->version,
                      "The version of the training system (default: the latest known)");
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace moeplan::cli
