#include "planner/messages/advise.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/advice/advise.h"
#include "planner/advice/layout_words.h"
#include "planner/advice/overlap.h"
#include "planner/advice/scheduled.h"
#include "planner/layout/price_layout.h"
#include "planner/messages/targets.h"
#include "planner/shipped/names.h"
#include "planner/wording.h"
#include "proto/convert/enums.h"
#include "proto/convert/plan.h"
#include "proto/convert/step.h"

namespace moeplan::planner {
namespace {

// Holds what `mine` gives.
struct Mine {
  StepQuestion question;
  Settings settings;  // Where it gives settings.
  std::vector<std::string> warnings;
};

// Settings of the training system. What could not be read, or is of another question, is no layout to compare with.
StatusOr<v1::StepLayout> LayoutOfSettings(const Target& target, const std::string& text, const Facts& facts,
                                          Mine& mine) {
  const bool takes_file = target.form == SettingsForm::kJson;
  StatusOr<SettingsRead> read = takes_file ? ReadConfig(target, text, "mine") : ReadArguments(target, text);
  if (!read.ok()) return read.status().Within(takes_file ? "" : "mine");
  for (const Violation& violation : read->violations) {
    return InvalidInput(StrCat("mine: ", violation.flags.empty() ? "" : violation.flags[0], ": ", violation.reason));
  }
  const CheckedSettings checked = CheckSettings(target, read->settings, facts);
  for (const Violation& warning : checked.warnings) {
    if (warning.rule == kOtherQuestion) return InvalidInput(StrCat("mine: ", warning.reason));
  }
  ASSIGN_OR_RETURN(const v1::CheckedSettings message, Check(target, *read, facts));
  for (const v1::BrokenRule& broken : message.violations()) {
    mine.warnings.push_back(
        StrCat("your settings: ", target.title, " refuses them: ", broken.rule(), ": ", broken.reason()));
  }
  for (const std::string& warning : message.warnings()) mine.warnings.push_back(StrCat("your settings: ", warning));
  mine.settings = std::move(read->settings);
  return message.layout();
}

// A layout as JSON, or the settings of the training system.
StatusOr<Mine> ReadMine(const std::string& text, const AdviceRequest& request, const Target& target,
                        const Facts& facts) {
  Mine mine;
  mine.question.request.model = request.model;
  mine.question.request.gpus = request.gpus;
  mine.question.request.global_batch = request.global_batch;
  mine.question.request.sequence_length = request.sequence_length;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  StatusOr<v1::StepLayout> layout =
      json ? StepLayoutFromJson(text, "mine") : LayoutOfSettings(target, text, facts, mine);
  if (json && !layout.ok() && target.form == SettingsForm::kJson) {
    layout = LayoutOfSettings(target, text, facts, mine);
  }
  if (!layout.ok()) return layout.status();
  RETURN_IF_ERROR(ReadStepLayout(*layout, "mine", mine.question));
  const bool chosen = mine.question.schedule || mine.question.lancet;
  mine.question.request.as_frameworks = !chosen && mine.question.layout.expert_sharding_parallel == 1;
  // Training systems lay contexts along the experts' ranks.
  if (mine.question.request.as_frameworks && !mine.question.horizontal_contexts)
    mine.question.horizontal_contexts = false;
  return mine;
}

v1::ComparedLayout CompareTo(const AdvisedLayout& layout, const StepRatio& ratio, int gpus) {
  v1::ComparedLayout message;
  *message.mutable_layout() = StepLayoutOf(layout.question);
  *message.mutable_step() = ToProto(layout.step, gpus);
  message.set_gain(ratio.ratio);
  message.set_gain_low(ratio.low);
  message.set_gain_high(ratio.high);
  message.set_text(LayoutText(layout.question));
  return message;
}

// Entries of the profile that answered, each at a size in its middle.
void AddCosts(const LayoutAdvice& advice, const Profile& profile, v1::Advice& message) {
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

// Names dispatchers that the older answer priced from other costs, as its warnings say. Named hardware has none of
// them, so what a profile has of them was measured.
void AddMeasuredSince(const v1::Advice& old, const Profile& profile, v1::ChangedAdvice& changed) {
  for (const CollectiveModel& entry : profile.collectives) {
    if (!SendsOnceToANode(entry.key.dispatcher)) continue;
    CollectiveKey plain = entry.key;
    plain.bytes_per_element.reset();
    const std::string name = Describe(CostKey(plain));
    plain.transport = Transport::kNccl;
    const std::string unknown[] = {StrCat(name, ": not measured"), StrCat(Describe(CostKey(plain)), ": not measured")};
    const bool was_unknown = std::ranges::any_of(old.step().warnings(), [&](const std::string& warning) {
      return warning.starts_with(unknown[0]) || warning.starts_with(unknown[1]);
    });
    if (was_unknown) changed.add_costs(StrCat(name, ": measured since; before, it was priced from others"));
  }
}

// Compares with the older answer: its costs as they are now, and what its decisions would take now.
Status SetChanged(const v1::Advice& old, const LayoutAdvice& advice, const Profile& profile, const StopSignals& stop,
                  v1::Advice& message) {
  if (old.gpus() != message.gpus() || old.global_batch() != message.global_batch() ||
      old.sequence_length() != message.sequence_length() || old.model() != message.model()) {
    return InvalidInput(StrCat("against: found an answer about ", old.model(), " on ", old.gpus(), " GPUs, ",
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
  AddMeasuredSince(old, profile, changed);
  if (compared == 0) message.add_warnings("the older answer: this source has none of its costs");
  StepQuestion before = advice.best.question;
  RETURN_IF_ERROR(ReadStepLayout(old.layout(), "against.layout", before));
  before.request.as_frameworks = true;
  before.layout.data_parallel = 0;
  before.schedule.reset(), before.chunks.reset(), before.partition_degree.reset();
  before.lancet = false;
  for (const Decision& decision : DecisionsBetween(advice.best.question, before)) {
    const StatusOr<StepRatio> ratio = CompareLayouts(advice.best.question, decision.without, profile, stop);
    if (stop.Requested()) return Cancelled("advice was cancelled");
    changed.add_decisions(StrCat(decision.taken, " instead of ", decision.instead,
                                 ratio.ok() ? StrCat(", which now takes ", RatioText(*ratio)) : ""));
  }
  return OkStatus();
}

v1::Advice MessageOf(const v1::AdviseRequest& asked, const AdviceRequest& request, const LayoutAdvice& advice,
                     const Profile& profile) {
  v1::Advice message;
  message.set_model(asked.model_name());
  message.set_gpus(request.gpus);
  message.set_global_batch(request.global_batch);
  message.set_sequence_length(request.sequence_length);
  *message.mutable_layout() = StepLayoutOf(advice.best.question);
  *message.mutable_step() = ToProto(advice.best.step, request.gpus);
  message.set_text(LayoutText(advice.best.question));
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
  message.set_mine_is_same(DecisionsBetween(advice.best.question, advice.mine.question).empty());
  message.set_gain(advice.gain.ratio);
  message.set_gain_low(advice.gain.low);
  message.set_gain_high(advice.gain.high);
  for (const CostToMeasure& cost : advice.measure_next) {
    message.add_measure_next(StrCat(Describe(cost.key), " (", Percent(cost.share), " of what its step may be off by)"));
  }
  const double factor = asked.has_measured_step_s() ? asked.measured_step_s() / advice.mine.step.layout.step_time_s : 1;
  if (asked.has_measured_step_s()) message.set_software_factor(factor);
  message.set_expected_step_time_s(factor * advice.best.step.layout.step_time_s);
  message.set_considered(advice.considered);
  for (const std::string& warning : advice.warnings) message.add_warnings(warning);
  AddCosts(advice, profile, message);
  return message;
}

// Says what overlap is worth to the layout that is advised, where it has exchanges to hide.
Status SetOverlap(const LayoutAdvice& advice, const Profile& profile, const StopSignals& stop, v1::Advice& message) {
  const StepQuestion& best = advice.best.question;
  if (best.request.model.moe_layers() == 0 || best.layout.expert_parallel == 1) return OkStatus();
  ASSIGN_OR_RETURN(const OverlapReport report, ExplainOverlap(best, profile, stop));
  message.mutable_step()->set_overlap(report.text);
  return OkStatus();
}

Status SetScheduled(const LayoutAdvice& advice, const Profile& profile, const StopSignals& stop, v1::Advice& message) {
  const AdvisedLayout& best = advice.best;
  ASSIGN_OR_RETURN(const std::string text, ScheduledText(best.question, best.step.layout.step_time_s, profile, stop));
  message.set_scheduled(text);
  return OkStatus();
}

// A reading that no machine can give is of another layout, another batch or another unit.
Status CheckMeasured(const v1::AdviseRequest& request, const LayoutAdvice& advice) {
  if (!request.has_measured_step_s()) return OkStatus();
  const RankedLayout& mine = advice.mine.step.layout;
  const double mfu = mine.mfu * mine.step_time_s / request.measured_step_s();
  if (mfu <= 1) return OkStatus();
  return InvalidInput(StrCat("measuredStepS: found ", request.measured_step_s(), " s, in which the GPUs would do ",
                             Percent(mfu), " of their peak; expected the step of `mine` on these GPUs"));
}

// Gives the settings of mine that must go when the layout's are added behind them.
Settings RemovedFrom(const Target& target, const Settings& mine, const v1::StepLayout& layout, const ModelConfig& model,
                     const LaunchNumbers& numbers) {
  const v1::ExportedLayout exported = Export(target, layout, model, numbers);
  std::string text;
  for (const std::string& token : exported.arguments()) text += StrCat("'", token, "' ");
  const StatusOr<SettingsRead> wanted = target.form == SettingsForm::kJson
                                            ? ReadConfig(target, exported.config(), "layout")
                                            : ReadArguments(target, text);
  if (!wanted.ok()) return {};
  return ToRemove(target, mine, wanted->settings, FactsOf(model, numbers));
}

// The first stage of ZeRO that the training system has, the usual one first.
void SetZeroStage(const Target& target, const LaunchNumbers& numbers, AdviceRequest& request) {
  for (const int stage : {1, 2, 3, 0}) {
    StepQuestion question;
    question.request.model = request.model;
    question.request.zero_stage = stage;
    const auto exported = Export(target, StepLayoutOf(question), request.model, numbers);
    const bool lacks =
        std::ranges::any_of(exported.not_expressible(), [](const auto& one) { return one.field() == "zeroStage"; });
    request.zero_stage = stage;
    if (!lacks) return;
  }
}

StatusOr<Target> TargetAsked(const v1::AdviseRequest& request) {
  ASSIGN_OR_RETURN(Target target,
                   TargetOf(request.to().empty() ? kUsualTarget : request.to(), request.target_version()));
  if (target.form != SettingsForm::kCall) return target;
  return InvalidInput(
      StrCat("to: found ", request.to(), ", which is a layer, expected a system that trains whole models"));
}

}  // namespace

StatusOr<v1::AdviseResponse> AnswerAdvise(const v1::AdviseRequest& asked, const ModelConfig& model,
                                          const ProfileSource& profile_of, int threads, std::stop_token cancelled) {
  AdviceRequest request;
  request.model = model;
  request.gpus = asked.gpus() != 0 ? asked.gpus() : GpusOfHardware(asked.hardware());
  request.global_batch = asked.global_batch();
  request.sequence_length = asked.sequence_length();
  request.threads = threads;
  if (asked.has_precision()) {
    ASSIGN_OR_RETURN(request.precision, EnumFromProto<Precision>(asked.precision(), "precision"));
  }
  if (asked.has_measured_step_s()) {
    const double measured_s = asked.measured_step_s();
    if (asked.mine().empty()) return InvalidInput("measuredStepS: found it without `mine`, whose step it is");
    if (!std::isfinite(measured_s) || measured_s <= 0) {
      return InvalidInput(StrCat("measuredStepS: found ", measured_s, ", expected seconds above 0"));
    }
  }
  constexpr size_t kMostBytes = size_t{1} << 18;
  if (asked.mine().size() > kMostBytes) {
    return InvalidInput(StrCat("mine: found ", asked.mine().size(), " bytes, expected at most ", kMostBytes));
  }
  ASSIGN_OR_RETURN(const Target target, TargetAsked(asked));
  if (asked.live_only() && (asked.mine().empty() || target.live.empty())) {
    return InvalidInput(asked.mine().empty()
                            ? "liveOnly: found it without `mine`, which is to change"
                            : StrCat("liveOnly: found it with ", target.title,
                                     ", expected a training system with settings that a running job can change"));
  }
  if (asked.live_only()) {
    const auto has = [&](std::string_view field) {
      return std::ranges::any_of(target.live, [&](const LiveField& live) { return live.field == field; });
    };
    request.live_only = {.recompute = has("recompute"), .recompute_layers = has("recomputeLayers")};
  }
  ASSIGN_OR_RETURN(const Profile profile, profile_of(model, request.gpus));
  if (request.gpus == 0) request.gpus = Ranks(profile.cluster);
  const LaunchNumbers numbers = {request.gpus, request.global_batch, request.sequence_length};
  std::optional<Mine> mine;
  if (!asked.mine().empty()) {
    ASSIGN_OR_RETURN(mine, ReadMine(asked.mine(), request, target, FactsOf(model, numbers)));
    const Precision precision = mine->question.request.precision;
    if (asked.has_precision() && precision != request.precision) {
      return InvalidInput(StrCat("precision: found ", v1::Precision::Kind_Name(asked.precision()),
                                 ", which `mine` does not have; leave it out, or give `mine` the same"));
    }
    request.precision = precision;
    request.mine = mine->question;
  }
  SetZeroStage(target, numbers, request);
  request.takes = [&](const StepQuestion& question) {
    const auto exported = Export(target, StepLayoutOf(question), model, numbers);
    return exported.violations().empty() && exported.not_expressible().empty();
  };
  ASSIGN_OR_RETURN(const LayoutAdvice advice, Advise(request, profile, cancelled));
  RETURN_IF_ERROR(CheckMeasured(asked, advice));
  v1::AdviseResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  response.set_device_memory_bytes(profile.cluster.device_memory_bytes);
  v1::Advice& message = *response.mutable_result();
  message = MessageOf(asked, request, advice, profile);
  const StopSignals stop = {.cancelled = cancelled, .out_of_time = {}};
  RETURN_IF_ERROR(SetOverlap(advice, profile, stop, message));
  RETURN_IF_ERROR(SetScheduled(advice, profile, stop, message));
  if (asked.has_against()) RETURN_IF_ERROR(SetChanged(asked.against(), advice, profile, stop, message));
  *message.mutable_export_() = Export(target, message.layout(), model, numbers);
  if (mine) {
    for (const std::string& warning : mine->warnings) message.add_warnings(warning);
    const Settings removed = RemovedFrom(target, mine->settings, message.layout(), model, numbers);
    for (const std::string& token : WriteArguments(target, removed)) message.add_remove_arguments(token);
  }
  return response;
}

}  // namespace moeplan::planner
