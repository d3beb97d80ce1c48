#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/overlap_text.h"
#include "cli/read_layout.h"
#include "cli/step_trace.h"
#include "cli/warnings.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/advice/overlap.h"
#include "planner/layout/price_layout.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct StepCommandOptions {
  SourceOption source;
  std::string model, layout, trace;
  std::optional<std::string> against;
  int gpus = 0, global_batch = 0, sequence_length = 0;
  bool json = false, overlap = false;
};

// The option gives the layout, which errors name as `path`.
StatusOr<StepQuestion> QuestionOf(const StepCommandOptions& options, const std::string& value, const char* option,
                                  const char* path) {
  StepQuestion question;
  question.request.gpus = options.gpus;
  question.request.global_batch = options.global_batch;
  question.request.sequence_length = options.sequence_length;
  ASSIGN_OR_RETURN(question.request.model, ModelOf(options.model));
  ASSIGN_OR_RETURN(const v1::StepLayout layout, ReadLayout(value, option));
  RETURN_IF_ERROR(ReadStepLayout(layout, path, question));
  return question;
}

void PrintAnswer(const StepQuestion& question, const v1::StepResult& step) {
  const LayoutRequest& request = question.request;
  std::printf("step %s (90 %%: %s to %s), %.3g tokens/s, %.3g for each GPU%s\n", Duration(step.step_time_s()).c_str(),
              Duration(step.low_s()).c_str(), Duration(step.high_s()).c_str(), step.tokens_per_s(),
              step.tokens_per_s_per_gpu(), step.mfu() > 0 ? StrCat("\nMFU ", Percent(step.mfu())).c_str() : "");
  const std::string moe = step.moe_schedule() == v1::Schedule::UNSPECIFIED
                              ? ""
                              : StrCat(", MoE layers as ", EnumNameOf(step.moe_schedule()));
  if (step.has_gain()) {
    std::printf("%.3f times as fast as --against (90 %%: %.3f to %.3f), whose step takes %s\n", step.gain(),
                step.gain_low(), step.gain_high(), Duration(step.against_step_time_s()).c_str());
  }
  std::printf("ZeRO %d, recompute %s, attention %s%s\n\n", request.zero_stage,
              v1::Recompute::Kind_Name(EnumToProto<v1::Recompute::Kind>(request.recompute)).c_str(),
              v1::AttentionKernel::Kind_Name(EnumToProto<v1::AttentionKernel::Kind>(request.attention)).c_str(),
              moe.c_str());
  std::vector<std::vector<std::string>> parts = {{"part", "forward", "backward", "of the step"}};
  for (const v1::StepPart& part : step.parts()) {
    parts.push_back({part.part(), part.forward_s() > 0 ? Duration(part.forward_s()) : "",
                     part.backward_s() > 0 ? Duration(part.backward_s()) : "",
                     Percent(part.exposed_s() / step.step_time_s())});
  }
  std::printf("%s\n", Table(parts).c_str());
  const v1::StepMemory& memory = step.memory();
  const auto with_unit = [](double bytes) { return StrCat(Gigabytes(bytes), " GB"); };
  const std::vector<std::vector<std::string>> bytes = {
      {"memory", with_unit(step.memory_bytes())},       {"weights", with_unit(memory.weights())},
      {"gradients", with_unit(memory.gradients())},     {"optimizer", with_unit(memory.optimizer())},
      {"activations", with_unit(memory.activations())}, {"buffers", with_unit(memory.buffers())},
      {"logits", with_unit(memory.logits())},           {"other", with_unit(memory.other())}};
  std::fputs(Table(bytes).c_str(), stdout);
}

void PrintLancet(const v1::StepResult& step) {
  const v1::StepLancet& lancet = step.lancet();
  char times[32];
  std::snprintf(times, sizeof times, "%.3f", lancet.without_step_time_s() / step.step_time_s());
  const std::string longer = std::string_view(times) == "1.000" ? "just as long" : StrCat(times, " times as long");
  std::printf("\n");
  PrintParagraph(StrCat("Lancet's passes over MoE layers as ", EnumNameOf(lancet.layer_schedule()),
                        ": cut ranges of the forward pass hide ", Duration(lancet.ranges_s()),
                        ", weight gradients beside all-to-alls ", Duration(lancet.weight_gradients_s()),
                        ". Without them the step takes ", Duration(lancet.without_step_time_s()), ", ", longer, "."));
}

constexpr int kMostLayers = 2;  // Of the timeline of two micro-batches.

void PrintOverlap(const std::string& text, const Timeline& beside) {
  std::printf("\n");
  PrintParagraph(text);
  if (!beside.empty()) std::printf("\n%s", OverlapText(beside).c_str());
}

Status Run(const StepCommandOptions& options) {
  ASSIGN_OR_RETURN(StepQuestion question, QuestionOf(options, options.layout, "--layout", "layout"));
  int& gpus = question.request.gpus;
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfileOfJob(question.request.model, gpus));
  ASSIGN_OR_RETURN(const StepAnswer answer, planner::PriceLayout(question, profile));
  v1::StepResult step = ToProto(answer, gpus);
  const std::string faster = planner::FasterLayers(question, answer, profile);
  if (!faster.empty()) step.add_warnings(faster);
  if (options.against) {
    ASSIGN_OR_RETURN(StepQuestion other, QuestionOf(options, *options.against, "--against", "against"));
    other.request.gpus = gpus;
    const auto ratio = planner::CompareLayouts(question, other, profile);
    if (!ratio.ok()) return ratio.status().Within("--against");
    SetGain(*ratio, step);
  }
  std::optional<planner::OverlapReport> report;
  if (options.overlap) {
    ASSIGN_OR_RETURN(report, planner::ExplainOverlap(question, profile));
    step.set_overlap(report->text);
  }
  const std::optional<OverlappedLayers>& overlap = report ? report->with_step.overlap : answer.overlap;
  const Timeline beside =
      overlap ? planner::OverlapTimeline(*overlap, std::min(kMostLayers, overlap->layers)) : Timeline();
  if (!options.trace.empty()) {
    const int samples = question.request.global_batch / answer.layout.layout.data_parallel;
    RETURN_IF_ERROR(WriteFile(options.trace, StepTrace(step, samples / answer.layout.micro_batch, beside)));
  }
  if (options.json) {
    PrintJson(step);
  } else {
    PrintAnswer(question, step);
    if (step.has_lancet()) PrintLancet(step);
    if (options.overlap) PrintOverlap(step.overlap(), beside);
    PrintWarnings({step.warnings().begin(), step.warnings().end()});
  }
  if (answer.missing_bytes == 0) return OkStatus();
  return Infeasible(StrCat("the layout does not fit: a GPU lacks ", BriefNumber(answer.missing_bytes),
                           " bytes; give it a smaller microBatch, more expert, pipeline or tensor parallelism, a "
                           "higher zeroStage or recompute FULL"));
}

}  // namespace

void AddStep(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<StepCommandOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "step", "Predict one training step of a model in one layout, in parts",
                 "moeplan step --db moeplan.db --model config.json --gpus 64 --global-batch 256 "
                 "--sequence-length 4096 --layout '{\"expertParallel\": 8}'",
                 [options] { return Run(*options); });
  options->source.AddWithHardware(*command);
  command->add_option("--model", options->model, "config.json of a Hugging Face model, or the name of one that ships")
      ->required();
  command->add_option("--gpus", options->gpus, "How many GPUs, in nodes such as the profile's (default: the source's)");
  command->add_option("--global-batch", options->global_batch, "Samples of a training step")->required();
  command->add_option("--sequence-length", options->sequence_length, "Tokens of a sample")->required();
  command
      ->add_option("--layout", options->layout, "JSON, or its file: degrees and how the step runs, or a row of layout")
      ->required();
  command->add_option("--against", options->against,
                      "Another layout, likewise: how many times as long its step takes, with the interval of that");
  command->add_flag("--overlap", options->overlap,
                    "Say what exchanges of experts beside another micro-batch gain here, or why nothing, and show two "
                    "layers of both");
  command->add_option("--trace", options->trace, "Write the step as a Chrome/Perfetto trace");
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace moeplan::cli
