#include "planner/advice/overlap.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/check.h"
#include "models/text.h"
#include "models/timeline/timeline.h"
#include "planner/advice/layout_words.h"
#include "planner/layout/price_layout.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

constexpr double kNothing = 0.005;  // Steps no further apart than that are the same.
constexpr double kLittle = 0.05;    // A gain below it is explained by what stands in its way.

// Returns what one more layer of both micro-batches takes once the first ones have settled.
double SettledS(const HalfLayers& layer, bool delays) {
  constexpr int kFew = 4, kMany = 8;
  return (TwoBatchesS(layer, kMany, delays) - TwoBatchesS(layer, kFew, delays)) / (kMany - kFew);
}

// A layer of both micro-batches, and what each of the two effects is worth.
struct LayerOfBoth {
  double serial_s = 0, together_s = 0;
  double exposed_s = 0;  // Exchanges that no compute hides.
  double slower_s = 0;   // What compute and exchanges take longer for running beside each other.
};

LayerOfBoth LayerOf(const OverlappedLayers& overlap) {
  HalfLayers undisturbed = overlap.layer;
  undisturbed.compute_slowdown = undisturbed.exchange_slowdown = 1;
  const double together_s = SettledS(overlap.layer, overlap.delays_weight_gradients);
  const double undisturbed_s = SettledS(undisturbed, overlap.delays_weight_gradients);
  return {.serial_s = overlap.layer.serial_s(),
          .together_s = together_s,
          .exposed_s = std::max(0.0, undisturbed_s - overlap.layer.compute_s()),
          .slower_s = std::max(0.0, together_s - undisturbed_s)};
}

StepQuestion With(const StepQuestion& question) {
  StepQuestion with = question;
  with.request.overlaps_experts = true;
  with.request.overlaps_shared_experts = false;
  if (with.layout.pipeline_parallel > 1 && with.request.stages.empty()) {
    with.request.virtual_stages = std::max(2, with.request.virtual_stages);
  }
  with.schedule.reset(), with.chunks.reset(), with.partition_degree.reset();
  with.lancet = false;
  return with;
}

StepQuestion Without(const StepQuestion& question) {
  StepQuestion without = question;
  without.request.overlaps_experts = without.request.delays_weight_gradients = false;
  return without;
}

std::string GainText(const OverlapReport& report) {
  const double with_s = report.with_step.layout.step_time_s, without_s = report.without_step.layout.step_time_s;
  const double ratio = report.gain.ratio;
  const std::string unsure =
      report.gain.low <= 1 && report.gain.high >= 1 ? "; the interval does not tell that from nothing" : "";
  if (std::abs(ratio - 1) <= kNothing) {
    return StrCat("gain nothing: the step takes ", Duration(with_s), " with them and ", Duration(without_s),
                  " without.");
  }
  if (ratio < 1) {
    return StrCat("make the step ", ThreeDigits(1 / ratio), " times as long (90 %: ", ThreeDigits(1 / report.gain.high),
                  " to ", ThreeDigits(1 / report.gain.low), "): ", Duration(with_s), " with them instead of ",
                  Duration(without_s), unsure, ".");
  }
  return StrCat("make the step ", ThreeDigits(ratio), " times as fast (90 %: ", ThreeDigits(report.gain.low), " to ",
                ThreeDigits(report.gain.high), "): ", Duration(with_s), " with them instead of ", Duration(without_s),
                unsure, ".");
}

// Nothing where it is less than a thousandth of the layer.
std::string PartText(double part_s, double layer_s, const char* none) {
  return part_s < 1e-3 * layer_s ? none : Duration(part_s);
}

// The largest of what stands in the way.
std::string WhyLittle(const OverlappedLayers& overlap, const LayerOfBoth& layer) {
  const double exchange_s = overlap.layer.exchange_s(), could_hide_s = exchange_s - layer.exposed_s;
  const double partners = overlap.micro_batches > 0 ? overlap.pairs / overlap.micro_batches : 0;
  if (overlap.pairs <= 0) return " No micro-batch has a partner, so that nothing is hidden: take more micro-batches.";
  if (exchange_s < 0.1 * layer.serial_s) {
    return StrCat(" There is little to hide: exchanges are ", Percent(exchange_s / layer.serial_s), " of a layer.");
  }
  if (layer.slower_s > 0.5 * could_hide_s) return " The slowdown takes back most of what hiding saves.";
  if (partners < 0.5) return " Most micro-batches have no partner: more of them would help.";
  if (layer.exposed_s > 0.5 * exchange_s) return " There is too little compute to hide the exchanges behind.";
  return "";
}

std::string LayersText(const OverlapReport& report) {
  const OverlappedLayers& overlap = *report.with_step.overlap;
  const LayerOfBoth layer = LayerOf(overlap);
  std::string text =
      StrCat(" A layer there and back has ", Duration(overlap.layer.exchange_s()), " of exchanges and ",
             Duration(overlap.layer.compute_s()), " of compute. Beside each other both take ",
             Duration(layer.together_s), " instead of ", Duration(layer.serial_s), ": ",
             PartText(layer.exposed_s, layer.serial_s, "none"), " of the exchanges stay exposed, and ",
             PartText(layer.slower_s, layer.serial_s, "nothing"), " goes to running slower beside each other (compute ",
             ThreeDigits(overlap.layer.compute_slowdown), " times as long).");
  if (overlap.pairs > 0 && overlap.pairs < overlap.micro_batches) {
    text += StrCat(" ", ThreeDigits(overlap.pairs), " of ", overlap.micro_batches,
                   " micro-batches have a partner; the others go forward or back alone.");
  }
  if (report.gain.ratio < 1 + kLittle) text += WhyLittle(overlap, layer);
  return text;
}

std::string MemoryText(const OverlapReport& report) {
  const double more_bytes =
      report.with_step.layout.memory.total_bytes() - report.without_step.layout.memory.total_bytes();
  std::string text;
  if (more_bytes > 0) text = StrCat(" The second micro-batch keeps ", ThreeDigits(more_bytes / 1e9), " GB more.");
  if (report.with_step.missing_bytes > 0) {
    text += StrCat(" That does not fit: a GPU lacks ", ThreeDigits(report.with_step.missing_bytes / 1e9), " GB.");
  }
  return text;
}

}  // namespace

StatusOr<OverlapReport> ExplainOverlap(const StepQuestion& question, const Profile& profile, const StopSignals& stop) {
  if (question.request.model.moe_layers() == 0) {
    return InvalidInput("model: found no experts, expected some, whose exchanges can run beside another micro-batch");
  }
  OverlapReport report;
  const bool has_them = question.request.overlaps_experts;
  report.with = has_them ? question : With(question);
  const StepQuestion without = has_them ? Without(question) : question;
  ASSIGN_OR_RETURN(report.without_step, PriceLayout(without, profile, stop));
  StatusOr<StepAnswer> with = PriceLayout(report.with, profile, stop);
  if (with.status().code() == StatusCode::kCancelled) return with.status();
  if (!with.ok()) {
    report.refused = with.status().message();
    report.text = StrCat("Exchanges of experts cannot run beside another micro-batch here: ", report.refused, ".");
    return report;
  }
  report.with_step = *std::move(with);
  ASSIGN_OR_RETURN(report.gain, CompareLayouts(report.with, without, profile, stop));
  const bool more_stages = report.with.request.virtual_stages != without.request.virtual_stages;
  report.text =
      StrCat("Exchanges of experts beside another micro-batch",
             more_stages ? StrCat(", which need ", report.with.request.virtual_stages, " virtual stages,") : "", " ",
             GainText(report));
  if (report.with_step.overlap) report.text += LayersText(report);
  report.text += MemoryText(report);
  return report;
}

Timeline OverlapTimeline(const OverlappedLayers& overlap, int layers) {
  MOEPLAN_CHECK(layers >= 1);
  const PricedTwoBatches both = BuildTwoBatches(overlap.layer, layers, overlap.delays_weight_gradients);
  return TimelineOf(both.graph, Play(both.graph, both.prices));
}

}  // namespace moeplan::planner
