#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/launch_text.h"
#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "moeplan/v1/advice.pb.h"
#include "planner/advice/layout_words.h"
#include "planner/messages/advise.h"
#include "planner/shipped/names.h"
#include "proto/convert/enums.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct AdviseCommandOptions {
  SourceOption source;
  std::string model, precision, mine, against, to = planner::kUsualTarget;
  std::optional<double> measured_step_s;
  int gpus = 0, global_batch = 0, sequence_length = 0;
  bool json = false;
};

std::string DoesNotFit(const v1::ComparedLayout& mine) {
  if (mine.step().missing_bytes() <= 0) return "";
  return StrCat("; it is predicted not to fit: a GPU lacks ", Gigabytes(mine.step().missing_bytes()), " GB");
}

// "15,012" of a rate.
std::string WholeNumber(double value) {
  std::string digits = StrCat(std::llround(value));
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

// The whole answer is so long at most: the last reasons go where it would be longer.
constexpr size_t kMostLines = 30;
constexpr size_t kIndent = 10;

std::string Takes(const v1::ComparedLayout& layout) {
  return "takes " + planner::RatioText({.ratio = layout.gain(), .low = layout.gain_low(), .high = layout.gain_high()});
}

void PrintAdvice(const v1::Advice& message) {
  std::vector<std::string> head, tail;
  std::vector<std::vector<std::string>> reasons;
  const auto add = [](std::vector<std::string>& lines, const std::string& label, const std::string& text) {
    for (std::string& line : Wrapped(label, text, kIndent)) lines.push_back(std::move(line));
  };
  const v1::StepResult& step = message.step();
  const v1::StepMemory& memory = step.memory();
  add(head, "take", message.text());
  add(head, "step",
      StrCat(Duration(step.step_time_s()), " (90 %: ", Duration(step.low_s()), " to ", Duration(step.high_s()), "), ",
             WholeNumber(step.tokens_per_s_per_gpu()), " tokens/s for each GPU",
             step.mfu() > 0 ? StrCat(", MFU ", Percent(step.mfu())) : ""));
  if (message.has_software_factor()) {
    char factor[32];
    std::snprintf(factor, sizeof factor, "%.2f", message.software_factor());
    add(head, "",
        StrCat("your software takes ", factor, " times what is predicted for yours: expect ",
               Duration(message.expected_step_time_s())));
  }
  add(head, "memory",
      StrCat(Gigabytes(step.memory_bytes()), " GB: weights ", Gigabytes(memory.weights()), ", gradients ",
             Gigabytes(memory.gradients()), ", optimizer ", Gigabytes(memory.optimizer()), ", activations ",
             Gigabytes(memory.activations()), ", the rest ",
             Gigabytes(memory.buffers() + memory.logits() + memory.other())));
  add(head, message.mine_is_usual() ? "usual" : "yours",
      message.mine_is_same() ? "the same"
                             : StrCat(Takes(message.mine()), ": ", message.mine().text(), DoesNotFit(message.mine())));
  if (message.has_runner_up()) {
    const v1::ComparedLayout& next = message.runner_up();
    add(head, "next best",
        StrCat(next.gain() < 1 ? "is as fast within 1 %, but less plain" : Takes(next), ": ", next.text()));
  }
  for (const std::string& reason : message.reasons()) reasons.push_back(Wrapped("because", reason, kIndent));
  if (message.has_changed()) {
    for (const std::string& cost : message.changed().costs()) add(tail, "changed", cost);
    for (const std::string& decision : message.changed().decisions()) add(tail, "decided", decision);
    if (message.changed().decisions().empty()) add(tail, "decided", "as before");
  }
  if (!message.scheduled().empty()) add(tail, "more", message.scheduled());
  if (!message.measure_next().empty()) add(tail, "measure", message.measure_next(0));
  const v1::ExportedLayout& exported = message.export_();
  tail.emplace_back();
  tail.push_back(StrCat("# ", exported.target(), " ", exported.target_version(),
                        ", beside the model's own settings (--json has all)"));
  const std::string settings = ExportText(exported, Arguments::kOfLayout);
  size_t lines = head.size() + tail.size() + static_cast<size_t>(std::ranges::count(settings, '\n'));
  for (const auto& reason : reasons) lines += reason.size();
  for (; lines > kMostLines && reasons.size() > 1; reasons.pop_back()) lines -= reasons.back().size();
  for (const auto& reason : reasons) head.insert(head.end(), reason.begin(), reason.end());
  head.insert(head.end(), tail.begin(), tail.end());
  for (const std::string& line : head) std::printf("%s\n", line.c_str());
  std::fputs(settings.c_str(), stdout);
  if (!message.remove_arguments().empty()) {
    std::string removed;
    for (const std::string& token : message.remove_arguments()) removed += " " + token;
    std::printf("# and without:%s\n", removed.c_str());
  }
}

Status Run(const AdviseCommandOptions& options) {
  if (options.source.hardware().empty() && !options.source.given()) {
    return InvalidInput("found no source of costs, expected one of --profile, --db, --planner, --hardware");
  }
  v1::AdviseRequest request;
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(options.model));
  request.set_model_name(options.model);
  request.set_hardware(options.source.hardware());
  request.set_gpus(options.gpus);
  request.set_global_batch(options.global_batch);
  request.set_sequence_length(options.sequence_length);
  request.set_to(options.to);
  if (!options.precision.empty()) {
    ASSIGN_OR_RETURN(const Precision precision, ReadPrecision(options.precision));
    request.set_precision(EnumToProto<v1::Precision::Kind>(precision));
  }
  if (!options.mine.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_mine(), TextOrFile(options.mine, "a layout as JSON or a launch script"));
  }
  if (options.measured_step_s) request.set_measured_step_s(*options.measured_step_s);
  if (!options.against.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_against(), ReadJsonFile<v1::Advice>(options.against));
  }
  const auto answer = planner::AnswerAdvise(
      request, model, [&](const ModelConfig& asked, int gpus) { return options.source.LoadProfileFor(asked, gpus); },
      DefaultThreads());
  if (!answer.ok()) return AsOption(answer.status());
  if (options.json) {
    PrintJson(answer->result());
  } else {
    PrintAdvice(answer->result());
    PrintWarnings({answer->result().warnings().begin(), answer->result().warnings().end()});
  }
  return OkStatus();
}

}  // namespace

void AddAdvise(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<AdviseCommandOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "advise", "Say what to set for a training job, why, and what it gains",
                 "moeplan advise --model qwen3-30b-a3b --hardware h100-sxm:8x8 --global-batch 512 "
                 "--sequence-length 4096 --mine my_launch_script.sh",
                 [options] { return Run(*options); });
  options->source.AddWithHardware(*command);
  command->add_option("--model", options->model, "config.json of a Hugging Face model, or the name of one that ships")
      ->required();
  command->add_option("--global-batch", options->global_batch, "Samples of a training step")->required();
  command->add_option("--sequence-length", options->sequence_length, "Tokens of a sample")->required();
  command->add_option("--gpus", options->gpus, "How many GPUs (default: the source's)");
  command->add_option("--precision", options->precision,
                      "Of products but the last: BF16, FP8, MXFP8 or NVFP4 (default: that of --mine, else BF16)");
  command->add_option("--mine", options->mine,
                      "The layout that you run, as JSON, or the settings of your launch script; text or a file");
  command->add_option(
      "--measured-step", options->measured_step_s,
      "Seconds that a step of --mine takes: what your software takes more is told apart from the layout");
  command->add_option("--against", options->against,
                      "An older answer (--json): which costs changed since, and which decision that moved");
  command->add_option("--to", options->to, StrCat("The training system to set it for: ", planner::TargetNamesText()))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace moeplan::cli
