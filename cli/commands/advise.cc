#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <variant>

#include "cli/command.h"
#include "cli/known_names.h"
#include "cli/launch_text.h"
#include "cli/options.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "moeplan/v1/advice.pb.h"
#include "planner/advice/advise.h"
#include "planner/advice/layout_words.h"
#include "planner/layout/price_layout.h"
#include "planner/messages/targets.h"
#include "proto/convert/plan.h"
#include "proto/convert/step.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

constexpr const char* kUsualTarget = "megatron";

struct AdviseCommandOptions {
  SourceOption source;
  std::string model, precision, mine, against, to = kUsualTarget;
  std::optional<double> measured_step_s;
  int gpus = 0, global_batch = 0, sequence_length = 0;
  bool json = false;
};

StatusOr<int> GpusOf(const AdviseCommandOptions& options) {
  if (options.gpus != 0) return options.gpus;
  const std::string& hardware = options.source.hardware();
  if (!hardware.empty()) RETURN_IF_ERROR(HardwareOf(hardware.substr(0, hardware.find(':'))).status());
  if (const int gpus = GpusOfHardware(hardware); gpus > 0) return gpus;
  if (hardware.empty() && !options.source.given()) {
    return InvalidInput("found no source of costs, expected one of --profile, --db, --planner, --hardware");
  }
  if (!options.source.given()) {
    return InvalidInput("--gpus: expected how many, or --hardware NAME:DOMAINSxGPUS");
  }
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfile());
  return Ranks(profile.cluster);
}

// Holds what --mine gives.
struct Mine {
  StepQuestion question;
  planner::Settings settings;  // Where it gives settings.
  std::vector<std::string> warnings;
};

// Settings of the training system. What could not be read, or is of another question, is no layout to compare with.
StatusOr<v1::StepLayout> LayoutOfSettings(const planner::Target& target, const std::string& text,
                                          const planner::Facts& facts, Mine& mine) {
  StatusOr<planner::SettingsRead> read = target.form == planner::SettingsForm::kJson
                                             ? planner::ReadConfig(target, text, "--mine")
                                             : planner::ReadArguments(target, text);
  if (!read.ok()) return read.status().Within(target.form == planner::SettingsForm::kJson ? "" : "--mine");
  for (const planner::Violation& violation : read->violations) {
    return InvalidInput(StrCat("--mine: ", violation.flags.empty() ? "" : violation.flags[0], ": ", violation.reason));
  }
  const planner::CheckedSettings checked = planner::CheckSettings(target, read->settings, facts);
  for (const planner::Violation& warning : checked.warnings) {
    if (warning.rule == planner::kOtherQuestion) return InvalidInput(StrCat("--mine: ", warning.reason));
  }
  ASSIGN_OR_RETURN(const v1::CheckedSettings message, planner::Check(target, *read, facts));
  for (const v1::BrokenRule& broken : message.violations()) {
    mine.warnings.push_back(StrCat("--mine: ", target.title, " refuses it: ", broken.rule(), ": ", broken.reason()));
  }
  for (const std::string& warning : message.warnings()) mine.warnings.push_back(StrCat("--mine: ", warning));
  mine.settings = std::move(read->settings);
  return message.layout();
}

// A layout as JSON, or the settings of the training system, each as text or the file that has it.
StatusOr<Mine> ReadMine(const AdviseCommandOptions& options, const planner::AdviceRequest& request,
                        const planner::Target& target, const planner::Facts& facts) {
  Mine mine;
  mine.question.request.model = request.model;
  mine.question.request.gpus = request.gpus;
  mine.question.request.global_batch = request.global_batch;
  mine.question.request.sequence_length = request.sequence_length;
  ASSIGN_OR_RETURN(const std::string text, TextOrFile(options.mine, "a layout as JSON or a launch script"));
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  StatusOr<v1::StepLayout> layout =
      json ? StepLayoutFromJson(text, "--mine") : LayoutOfSettings(target, text, facts, mine);
  if (json && !layout.ok() && target.form == planner::SettingsForm::kJson) {
    layout = LayoutOfSettings(target, text, facts, mine);
  }
  if (!layout.ok()) return layout.status();
  RETURN_IF_ERROR(ReadStepLayout(*layout, "--mine", mine.question));
  mine.question.request.as_frameworks = !mine.question.schedule && mine.question.layout.expert_sharding_parallel == 1;
  return mine;
}

v1::ComparedLayout CompareTo(const planner::AdvisedLayout& layout, const StepRatio& ratio, int gpus) {
  v1::ComparedLayout message;
  *message.mutable_layout() = StepLayoutOf(layout.question);
  *message.mutable_step() = ToProto(layout.step, gpus);
  message.set_gain(ratio.ratio);
  message.set_gain_low(ratio.low);
  message.set_gain_high(ratio.high);
  return message;
}

// Entries of the profile that answered, each at a size in its middle.
void AddCosts(const planner::LayoutAdvice& advice, const Profile& profile, v1::Advice& message) {
  for (const CostKey& key : advice.best.step.layout.priced_from) {
    const CostModel* const model =
        std::visit([&](const auto& one) -> const CostModel* { return Find(profile, one); }, key);
    if (model == nullptr) continue;
    const double low = std::max(1.0, model->size_low);
    const double size = std::isfinite(model->size_high) ? std::sqrt(low * std::max(low, model->size_high)) : 16 * low;
    const auto* const collective = std::get_if<CollectiveKey>(&key);
    const double bus = collective != nullptr ? BusFactor(collective->collective, collective->group.size) : 1;
    const PricedTime time = Price(*model, size, bus);
    v1::AdviceCost& cost = *message.add_costs();
    cost.set_cost(Describe(key));
    cost.set_size(size);
    cost.set_time_s(time.time_s);
    cost.set_low_s(time.low_s);
    cost.set_high_s(time.high_s);
  }
}

// Compares with the older answer: its costs as they are now, and what its decisions would take now.
Status SetChanged(const AdviseCommandOptions& options, const planner::LayoutAdvice& advice, const Profile& profile,
                  v1::Advice& message) {
  ASSIGN_OR_RETURN(const auto old, ReadJsonFile<v1::Advice>(options.against));
  if (old.gpus() != message.gpus() || old.global_batch() != message.global_batch() ||
      old.sequence_length() != message.sequence_length() || old.model() != message.model()) {
    return InvalidInput(StrCat("--against: found an answer about ", old.model(), " on ", old.gpus(), " GPUs, ",
                               old.global_batch(), " samples of ", old.sequence_length(),
                               " tokens; expected one to the same question"));
  }
  v1::ChangedAdvice& changed = *message.mutable_changed();
  std::map<std::string, const CostModel*> models;
  std::map<std::string, double> bus_factors;
  for (const CollectiveModel& entry : profile.collectives) {
    const std::string name = Describe(CostKey(entry.key));
    models[name] = &entry.model;
    bus_factors[name] = BusFactor(entry.key.collective, entry.key.group.size);
  }
  for (const KernelModel& entry : profile.kernels) models[Describe(CostKey(entry.key))] = &entry.model;
  std::multimap<double, std::string, std::greater<>> by_change;
  int compared = 0;
  for (const v1::AdviceCost& cost : old.costs()) {
    const auto found = models.find(cost.cost());
    if (found == models.end() || !(cost.time_s() > 0) || !(cost.size() > 0)) continue;
    ++compared;
    const double bus = bus_factors.contains(cost.cost()) ? bus_factors.at(cost.cost()) : 1;
    const PricedTime now = Price(*found->second, cost.size(), bus);
    // Within both intervals nothing is known to have changed.
    if (now.low_s <= cost.high_s() && cost.low_s() <= now.high_s) continue;
    const double ratio = now.time_s / cost.time_s();
    char text[160];
    std::snprintf(text, sizeof text, ": %.2f times as long as before (%s instead of %s)", ratio,
                  Duration(now.time_s).c_str(), Duration(cost.time_s()).c_str());
    by_change.emplace(std::abs(std::log(ratio)), cost.cost() + text);
  }
  for (const auto& [change, text] : by_change) changed.add_costs(text);
  if (compared == 0) message.add_warnings("--against: this source has none of the costs of the older answer");
  StepQuestion before = advice.best.question;
  before.schedule.reset();
  before.request.recompute_modules = {};
  const Status read = ReadStepLayout(old.layout(), "layout", before);
  if (!read.ok()) return read.Within(options.against);
  before.request.as_frameworks = true;
  before.layout.data_parallel = 0;
  before.schedule.reset(), before.chunks.reset(), before.partition_degree.reset();
  for (const planner::Decision& decision : planner::DecisionsBetween(advice.best.question, before)) {
    const StatusOr<StepRatio> ratio = planner::CompareLayouts(advice.best.question, decision.without, profile);
    changed.add_decisions(StrCat(decision.taken, " instead of ", decision.instead,
                                 ratio.ok() ? StrCat(", which now takes ", planner::RatioText(*ratio)) : ""));
  }
  return OkStatus();
}

StatusOr<v1::Advice> MessageOf(const AdviseCommandOptions& options, const planner::AdviceRequest& request,
                               const planner::LayoutAdvice& advice, const Profile& profile) {
  v1::Advice message;
  message.set_model(options.model);
  message.set_gpus(request.gpus);
  message.set_global_batch(request.global_batch);
  message.set_sequence_length(request.sequence_length);
  *message.mutable_layout() = StepLayoutOf(advice.best.question);
  *message.mutable_step() = ToProto(advice.best.step, request.gpus);
  if (advice.best.question.schedule) {
    const Knobs& knobs = advice.best.step.layout.moe;
    message.mutable_plan()->set_schedule(message.layout().schedule());
    message.mutable_plan()->set_chunks(knobs.chunks);
    message.mutable_plan()->set_partition_degree(knobs.partition_degree);
  }
  if (advice.runner_up) {
    *message.mutable_runner_up() = CompareTo(*advice.runner_up, advice.runner_up_ratio, request.gpus);
  }
  for (const std::string& reason : advice.reasons) message.add_reasons(reason);
  *message.mutable_mine() = CompareTo(advice.mine, advice.gain, request.gpus);
  message.set_mine_is_usual(advice.mine_is_usual);
  message.set_gain(advice.gain.ratio);
  message.set_gain_low(advice.gain.low);
  message.set_gain_high(advice.gain.high);
  for (const planner::CostToMeasure& cost : advice.measure_next) {
    message.add_measure_next(StrCat(Describe(cost.key), " (", Percent(cost.share), " of what its step may be off by)"));
  }
  const double factor = options.measured_step_s ? *options.measured_step_s / advice.mine.step.layout.step_time_s : 1;
  if (options.measured_step_s) message.set_software_factor(factor);
  message.set_expected_step_time_s(factor * advice.best.step.layout.step_time_s);
  message.set_considered(advice.considered);
  for (const std::string& warning : advice.warnings) message.add_warnings(warning);
  AddCosts(advice, profile, message);
  if (!options.against.empty()) RETURN_IF_ERROR(SetChanged(options, advice, profile, message));
  return message;
}

// A reading that no machine can give is of another layout, another batch or another unit.
Status CheckMeasured(const AdviseCommandOptions& options, const planner::LayoutAdvice& advice) {
  if (!options.measured_step_s) return OkStatus();
  const RankedLayout& mine = advice.mine.step.layout;
  const double mfu = mine.mfu * mine.step_time_s / *options.measured_step_s;
  if (mfu <= 1) return OkStatus();
  return InvalidInput(StrCat("--measured-step: found ", *options.measured_step_s, " s, in which the GPUs would do ",
                             Percent(mfu), " of their peak; expected the step of --mine on these GPUs"));
}

// Gives the settings of mine that must go when the layout's are added behind them.
planner::Settings RemovedFrom(const planner::Target& target, const planner::Settings& mine,
                              const v1::StepLayout& layout, const ModelConfig& model, const LaunchNumbers& numbers) {
  const v1::ExportedLayout exported = ExportTo(target, layout, model, numbers);
  std::string text;
  for (const std::string& token : exported.arguments()) text += StrCat("'", token, "' ");
  const StatusOr<planner::SettingsRead> wanted = target.form == planner::SettingsForm::kJson
                                                     ? planner::ReadConfig(target, exported.config(), "layout")
                                                     : planner::ReadArguments(target, text);
  if (!wanted.ok()) return {};
  return planner::ToRemove(target, mine, wanted->settings, FactsOf(model, numbers));
}

// The first stage of ZeRO that the training system has, the usual one first.
void SetZeroStage(const planner::Target& target, const LaunchNumbers& numbers, planner::AdviceRequest& request) {
  for (const int stage : {1, 2, 3, 0}) {
    StepQuestion question;
    question.request.model = request.model;
    question.request.zero_stage = stage;
    const auto exported = ExportTo(target, StepLayoutOf(question), request.model, numbers);
    const bool lacks =
        std::ranges::any_of(exported.not_expressible(), [](const auto& one) { return one.field() == "zeroStage"; });
    request.zero_stage = stage;
    if (!lacks) return;
  }
}

std::string Gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", bytes / 1e9);
  return text;
}

// A line that goes on is indented under its text.
std::vector<std::string> Wrapped(const std::string& label, const std::string& text) {
  constexpr size_t kWidth = 80, kLabel = 10;
  std::vector<std::string> lines;
  std::string line = label + std::string(label.size() < kLabel ? kLabel - label.size() : 1, ' ');
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.size(), text.find(' ', start));
    const std::string word = text.substr(start, end - start);
    if (line.size() > kLabel && line.size() + 1 + word.size() > kWidth) {
      lines.push_back(std::move(line));
      line = std::string(kLabel, ' ');
    } else if (line.size() > kLabel && line.back() != ' ') {
      line += ' ';
    }
    line += word;
    start = end + 1;
  }
  lines.push_back(std::move(line));
  return lines;
}

std::string DoesNotFit(const planner::AdvisedLayout& mine) {
  if (mine.step.missing_bytes <= 0) return "";
  return StrCat("; it is predicted not to fit: a GPU lacks ", Gigabytes(mine.step.missing_bytes), " GB");
}

// "15,012" of a rate.
std::string WholeNumber(double value) {
  std::string digits = StrCat(std::llround(value));
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

// The whole answer is so long at most: the last reasons go where it would be longer.
constexpr size_t kMostLines = 30;

void PrintAdvice(const planner::LayoutAdvice& advice, const v1::Advice& message) {
  std::vector<std::string> head, tail;
  std::vector<std::vector<std::string>> reasons;
  const auto add = [](std::vector<std::string>& lines, const std::string& label, const std::string& text) {
    for (std::string& line : Wrapped(label, text)) lines.push_back(std::move(line));
  };
  const v1::StepResult& step = message.step();
  const v1::StepMemory& memory = step.memory();
  add(head, "take", planner::LayoutText(advice.best.question));
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
  const bool same = planner::DecisionsBetween(advice.best.question, advice.mine.question).empty();
  add(head, message.mine_is_usual() ? "usual" : "yours",
      same ? "the same"
           : StrCat("takes ", planner::RatioText(advice.gain), ": ", planner::LayoutText(advice.mine.question),
                    DoesNotFit(advice.mine)));
  if (advice.runner_up) {
    const std::string takes = advice.runner_up_ratio.ratio < 1 ? "is as fast within 1 %, but less plain"
                                                               : "takes " + planner::RatioText(advice.runner_up_ratio);
    add(head, "next best", StrCat(takes, ": ", planner::LayoutText(advice.runner_up->question)));
  }
  for (const std::string& reason : message.reasons()) reasons.push_back(Wrapped("because", reason));
  if (message.has_changed()) {
    for (const std::string& cost : message.changed().costs()) add(tail, "changed", cost);
    for (const std::string& decision : message.changed().decisions()) add(tail, "decided", decision);
    if (message.changed().decisions().empty()) add(tail, "decided", "as before");
  }
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
  planner::AdviceRequest request;
  ASSIGN_OR_RETURN(request.model, ModelOf(options.model));
  ASSIGN_OR_RETURN(request.gpus, GpusOf(options));
  if (!options.precision.empty()) {
    ASSIGN_OR_RETURN(request.precision, ReadPrecision(options.precision));
  }
  request.global_batch = options.global_batch;
  request.sequence_length = options.sequence_length;
  request.threads = DefaultThreads();
  if (options.measured_step_s && (options.mine.empty() || !(*options.measured_step_s > 0))) {
    return InvalidInput(options.mine.empty() ? "--measured-step: found it without --mine, whose step it is"
                                             : "--measured-step: expected seconds above 0");
  }
  ASSIGN_OR_RETURN(const planner::Target target, TargetOf(options.to, ""));
  if (target.form == planner::SettingsForm::kCall) {
    return InvalidInput(StrCat("--to: found ", options.to,
                               ", which is a layer, expected a system that trains whole models; "
                               "`moeplan export --to ",
                               options.to, "` says a plan of a layer"));
  }
  const LaunchNumbers numbers = {request.gpus, request.global_batch, request.sequence_length};
  const planner::Facts facts = FactsOf(request.model, numbers);
  std::optional<Mine> mine;
  if (!options.mine.empty()) {
    ASSIGN_OR_RETURN(mine, ReadMine(options, request, target, facts));
    const Precision precision = mine->question.request.precision;
    if (!options.precision.empty() && precision != request.precision) {
      return InvalidInput(StrCat("--precision: found ", options.precision,
                                 ", which --mine does not have; leave it out, or give "
                                 "--mine the same"));
    }
    request.precision = precision;
    request.mine = mine->question;
  }
  SetZeroStage(target, numbers, request);
  request.takes = [&](const StepQuestion& question) {
    StepQuestion whole = question;
    const auto exported = ExportTo(target, StepLayoutOf(whole), request.model, numbers);
    return exported.violations().empty() && exported.not_expressible().empty();
  };
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfileFor(request.model, request.gpus));
  ASSIGN_OR_RETURN(const planner::LayoutAdvice advice, planner::Advise(request, profile));
  RETURN_IF_ERROR(CheckMeasured(options, advice));
  ASSIGN_OR_RETURN(v1::Advice message, MessageOf(options, request, advice, profile));
  *message.mutable_export_() = ExportTo(target, message.layout(), request.model, numbers);
  if (mine) {
    for (const std::string& warning : mine->warnings) message.add_warnings(warning);
    const planner::Settings removed = RemovedFrom(target, mine->settings, message.layout(), request.model, numbers);
    for (const std::string& token : planner::WriteArguments(target, removed)) message.add_remove_arguments(token);
  }
  if (options.json) {
    PrintJson(message);
  } else {
    PrintAdvice(advice, message);
    PrintWarnings({message.warnings().begin(), message.warnings().end()});
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
  command->add_option("--to", options->to, StrCat("The training system to set it for: ", TargetNames()))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace moeplan::cli
