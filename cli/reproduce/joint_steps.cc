#include "cli/reproduce/joint_steps.h"

#include <map>
#include <string>
#include <vector>

#include "cli/reproduce/rows.h"
#include "models/text.h"
#include "planner/rules/step_alternatives.h"
#include "planner/shipped/names.h"

namespace moeplan::cli {
namespace {

struct Step {
  const char* model;
  const char* hardware;
  int gpus, global_batch;
  Layout layout;
  int micro_batch = 1;
};
constexpr int kSequenceLength = 4096;
constexpr Step kSteps[] = {
    {"mixtral-8x7b", "h100-sxm", 64, 256, {.expert_parallel = 8, .pipeline_parallel = 4}},
    {"mixtral-8x7b", "h100-sxm", 64, 256, {.tensor_parallel = 4, .expert_parallel = 8}},
    {"qwen3-30b-a3b", "h100-sxm", 64, 512, {.expert_parallel = 8, .pipeline_parallel = 2}},
    {"qwen3-30b-a3b", "h100-sxm", 64, 512, {.expert_parallel = 32}},
    {"qwen3-30b-a3b", "a100-sxm", 64, 512, {.tensor_parallel = 2, .expert_parallel = 16}},
    {"qwen3-30b-a3b", "b200", 64, 512, {.expert_parallel = 32}},
    {"gpt-oss-20b", "a100-pcie", 32, 128, {.expert_parallel = 16}},
    {"deepseek-v3", "h100-sxm", 1024, 4096, {.expert_parallel = 32, .pipeline_parallel = 16}},
};
const std::map<std::string, const char*> kTitles = {{"one piece", "layers in one piece"},
                                                    {"parm", "Parm"},
                                                    {"monta", "MoNTA"},
                                                    {"schemoe", "ScheMoE"},
                                                    {"lancet", "Lancet"},
                                                    {"layers", "the best plan of each layer"}};

std::string NameOf(const Step& step) {
  const Layout& layout = step.layout;
  std::string name = StrCat(step.model, " on ", step.gpus, " of ", step.hardware, ", EP ", layout.expert_parallel);
  if (layout.tensor_parallel > 1) name += StrCat(", TP ", layout.tensor_parallel);
  if (layout.pipeline_parallel > 1) name += StrCat(", PP ", layout.pipeline_parallel);
  return name;
}

StatusOr<std::vector<planner::StepAlternative>> ChoicesOf(const Step& step) {
  StepQuestion question;
  ASSIGN_OR_RETURN(question.request.model, planner::NamedModel(step.model));
  question.request.gpus = step.gpus;
  question.request.global_batch = step.global_batch;
  question.request.sequence_length = kSequenceLength;
  question.request.zero_stage = 1;
  question.layout = step.layout;
  question.layout.data_parallel = 0;
  question.micro_batch = step.micro_batch;
  question.horizontal_contexts = false;
  ASSIGN_OR_RETURN(Profile profile, planner::HardwareProfile(step.hardware, step.gpus, question.request.model));
  // Times are compared whether a layout fits or not.
  profile.cluster.device_memory_bytes = 0;
  return planner::StepAlternatives(question, profile);
}

}  // namespace

StatusOr<v1::ReproducedTable> JointSteps() {
  v1::ReproducedTable table =
      MakeTable("joint",
                "How many times as long a whole step is predicted to take with each paper's choice as with the "
                "best of all of them");
  std::map<std::string, std::vector<double>> ratios;
  for (const Step& step : kSteps) {
    const std::string name = NameOf(step);
    const StatusOr<std::vector<planner::StepAlternative>> choices = ChoicesOf(step);
    if (!choices.ok()) return choices.status().Within(name);
    const double joint_s = choices->back().step_s;
    for (const planner::StepAlternative& choice : *choices) {
      const auto title = kTitles.find(choice.name);
      if (title == kTitles.end()) continue;
      const double ratio = choice.step_s / joint_s;
      ratios[choice.name].push_back(ratio);
      AddRow(table, Figure{.name = StrCat(name, ": with ", title->second), .ours = ratio});
    }
    AddRow(table, Figure{.name = StrCat(name, ": the best of all"), .unit = kSeconds, .ours = joint_s});
  }
  for (const auto& [name, of_name] : ratios) {
    AddRow(table,
           Figure{.name = StrCat("all: with ", kTitles.at(name), ", mean of ", of_name.size()), .ours = Mean(of_name)});
  }
  return table;
}

}  // namespace moeplan::cli
