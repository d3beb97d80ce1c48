#include "planner/lancet/stage_gains.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "models/check.h"
#include "models/text.h"
#include "planner/lancet/graph_layout.h"
#include "planner/lancet/model_graph.h"
#include "planner/layout/stages.h"
#include "planner/rules/lancet.h"

namespace moeplan::planner {
namespace {

// Tells runs apart whose graphs differ: which layers have experts and windows, and what is around them.
struct RunShape {
  std::vector<bool> moe_layers, windowed_layers;
  bool embeds = false, predicts = false;

  friend auto operator<=>(const RunShape&, const RunShape&) = default;
};

std::vector<bool> Part(const std::vector<bool>& layers, const LayerRun& run) {
  if (layers.empty()) return {};
  return {layers.begin() + run.first, layers.begin() + run.first + run.count};
}

// When the instruction is over, in one launch or in parts.
double EndOf(const Timeline& timeline, const std::string& instruction) {
  double end_s = -1;
  for (const TaskTiming& one : timeline) {
    if (one.task == instruction || one.task.starts_with(instruction + "#")) end_s = std::max(end_s, one.end_s);
  }
  MOEPLAN_CHECK(end_s >= 0);
  return end_s;
}

// Two shorter runs whose layers go on as the run's do, so that its gain follows from theirs.
struct ShorterRuns {
  LayerRun shorter, longer;
};

// The layers behind the first few repeat with a short period in every model that ships: all alike behind some dense
// ones, or windowed and not in turns. Layers are taken away in whole periods, so that the last ones stay the same.
std::optional<ShorterRuns> ShorterRunsOf(const ModelConfig& model, const LayerRun& run, int whole_layers) {
  constexpr int kLongestPeriod = 4, kApart = 4;
  if (run.count <= whole_layers) return std::nullopt;
  const auto kind = [&](int i) {
    const int layer = run.first + i;
    return std::pair(bool{model.moe_layer[layer]}, !model.windowed_layer.empty() && model.windowed_layer[layer]);
  };
  for (int period = 1; period <= kLongestPeriod; ++period) {
    int irregular = run.count - period;
    while (irregular > 0 && kind(irregular - 1) == kind(irregular - 1 + period)) --irregular;
    const int apart = (kApart + period - 1) / period * period;
    const int left = irregular + whole_layers;  // At least so many stay.
    const int longer = left + (run.count - left) % period;
    if (left >= run.count || longer - apart <= irregular) continue;
    ShorterRuns runs = {run, run};
    runs.longer.count = longer;
    runs.shorter.count = longer - apart;
    return runs;
  }
  return std::nullopt;
}

// Counts the launches of a plan beyond one of each kernel and collective. Ranges do not overlap.
double MoreLaunches(const TrainingGraph& graph, const LancetAnswer& plan) {
  double more = 0;
  for (const LancetAnswer::Partition& range : plan.partitions) {
    bool within = false;
    for (const Instruction& one : graph.instructions) {
      within = within || one.id == range.first;
      if (within) more += (range.parts - 1.0) * static_cast<double>(std::max<size_t>(1, one.work.size()));
      if (one.id == range.last) break;
    }
  }
  return more;
}

double MoreBytes(const LancetAnswer& plan) {
  return std::max(0.0, plan.peak_bytes.value_or(0) - plan.unscheduled_peak_bytes.value_or(0));
}

// Sends of virtual stages hide behind other micro-batches, whatever runs in parts (planner/layout/step_time.cc).
void FreeSends(TrainingGraph& graph) {
  for (Instruction& one : graph.instructions) {
    if (one.op != InstructionOp::kSend) continue;
    one.time_s = 0;
    std::ranges::fill(one.part_times_s, 0.0);
  }
}

class StagePlanner {
 public:
  StagePlanner(const LayoutRequest& request, const LayoutPoint& point, const Profile& profile, PriceNotes& notes,
               const StopSignals& stop, int whole_layers)
      : request_(request), point_(point), profile_(profile), notes_(notes), stop_(stop), whole_layers_(whole_layers) {}

  StatusOr<std::vector<StageGain>> Run() {
    const int pipeline = point_.layout.pipeline_parallel;
    const std::vector<int> layers = LayersOfStages(request_, pipeline);
    std::vector<StageGain> gains(static_cast<size_t>(pipeline));
    LayerRun run;
    for (size_t i = 0; i < layers.size(); ++i) {
      run.count = layers[i];
      run.embeds = i == 0;
      run.predicts = i + 1 == layers.size();
      if (run.count > 0) {
        ASSIGN_OR_RETURN(const StageGain gain, GainOf(run));
        gains[i % gains.size()].Add(gain);
      }
      run.first += run.count;
    }
    return gains;
  }

 private:
  // Goes on from two shorter runs as the gain grew between them.
  StatusOr<StageGain> GainOf(const LayerRun& run) {
    const std::optional<ShorterRuns> runs = ShorterRunsOf(request_.model, run, whole_layers_);
    if (!runs) return GainOfWhole(run);
    ASSIGN_OR_RETURN(const StageGain less, GainOfWhole(runs->shorter));
    ASSIGN_OR_RETURN(const StageGain more, GainOfWhole(runs->longer));
    const double times = 1.0 * (run.count - runs->longer.count) / (runs->longer.count - runs->shorter.count);
    const auto onward = [&](double StageGain::*field) {
      return std::max(0.0, more.*field + times * (more.*field - less.*field));
    };
    return StageGain{.ranges_s = onward(&StageGain::ranges_s),
                     .weight_gradients_s = onward(&StageGain::weight_gradients_s),
                     .more_launches = onward(&StageGain::more_launches),
                     .more_bytes = onward(&StageGain::more_bytes)};
  }

  StatusOr<StageGain> GainOfWhole(const LayerRun& run) {
    const RunShape shape = {Part(request_.model.moe_layer, run), Part(request_.model.windowed_layer, run), run.embeds,
                            run.predicts};
    const auto known = known_.find(shape);
    if (known != known_.end()) return known->second;
    ASSIGN_OR_RETURN(const StageGain gain, Plan(run));
    known_[shape] = gain;
    return gain;
  }

  StatusOr<StageGain> Plan(const LayerRun& run) {
    ASSIGN_OR_RETURN(TrainingGraph graph, GraphOfRun(request_, point_, run, profile_, notes_));
    if (request_.virtual_stages > 1) FreeSends(graph);
    constexpr LancetOptions kGivenOrder = {.passes = {.weight_gradients = false, .partition = false}};
    ASSIGN_OR_RETURN(const GraphPlanAnswer given, PlanGraph(graph, &profile_, kGivenOrder, stop_.cancelled));
    ASSIGN_OR_RETURN(const GraphPlanAnswer planned, PlanGraph(graph, &profile_, {}, stop_.cancelled));
    if (stop_.Requested()) return Cancelled("planning the graph of a stage was cancelled");
    const std::string last = LastOfForward(run);
    const double ranges_s = EndOf(given.lancet.timeline, last) - EndOf(planned.lancet.timeline, last);
    const double all_s = planned.lancet.unscheduled_time_s - planned.lancet.time_s;
    return StageGain{.ranges_s = ranges_s,
                     .weight_gradients_s = std::max(0.0, all_s - ranges_s),
                     .more_launches = MoreLaunches(graph, planned.lancet),
                     .more_bytes = MoreBytes(planned.lancet)};
  }

  const LayoutRequest& request_;
  const LayoutPoint& point_;
  const Profile& profile_;
  PriceNotes& notes_;
  const StopSignals& stop_;
  const int whole_layers_;
  std::map<RunShape, StageGain> known_;
};

}  // namespace

Status CheckLancet(const StepQuestion& question) {
  if (question.request.model.moe_layers() == 0) {
    return InvalidInput("layout.schedule: found LANCET, expected none: the model has no layer of experts");
  }
  const Status has = CheckGraphHas(question.request);
  if (has.ok()) return has;
  return InvalidInput(StrCat(has.message(), "; layout.schedule LANCET plans the graph of a stage"));
}

StatusOr<std::vector<StageGain>> GainsOfStages(const LayoutRequest& request, const LayoutPoint& point,
                                               const Profile& profile, PriceNotes& notes, const StopSignals& stop,
                                               int whole_layers) {
  return StagePlanner(request, point, profile, notes, stop, whole_layers).Run();
}

}  // namespace moeplan::planner
