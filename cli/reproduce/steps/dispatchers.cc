#include "cli/reproduce/steps/dispatchers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cli/known_names.h"
#include "cli/reproduce/steps/step_row.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

StatusOr<v1::StepLayout> LayoutOf(CsvRow& row) {
  v1::StepLayout layout = DegreesOf(row, /*has_experts=*/true);
  constexpr Word kRecompute[] = {{"", v1::Recompute::NONE},
                                 {"none", v1::Recompute::NONE},
                                 {"selective", v1::Recompute::SELECTIVE},
                                 {"full", v1::Recompute::FULL}};
  ASSIGN_OR_RETURN(const auto recompute, Named<v1::Recompute::Kind>(row, "recompute", kRecompute));
  layout.set_recompute(recompute);
  constexpr Word kDispatchers[] = {{"", v1::Dispatcher::ALL_TO_ALL},
                                   {"alltoall", v1::Dispatcher::ALL_TO_ALL},
                                   {"allgather", v1::Dispatcher::ALL_GATHER},
                                   {"deepep", v1::Dispatcher::DEEPEP},
                                   {"hybridep", v1::Dispatcher::HYBRID_EP}};
  ASSIGN_OR_RETURN(const auto dispatcher, Named<v1::Dispatcher::Kind>(row, "dispatcher", kDispatchers));
  layout.set_dispatcher(dispatcher);
  layout.set_overlap_expert_parallel(row.Count("overlap_ep") > 0);
  SetUsualSchedule(layout);
  return layout;
}

StatusOr<MeasuredStep> StepOf(CsvRow row) {
  std::string cell;
  for (const char* column : {"campaign", "model", "gpu", "gpus", "tp", "pp", "vp", "ep", "seq", "mbs", "gbs",
                             "precision", "recompute", "layers", "overlap_ep"}) {
    cell += StrCat(row.Text(column), " ");
  }
  MeasuredStep step = {.set = "dispatcher-cells",
                       .name = StrCat(row.Text("model"), " ", row.Text("nodes"), " nodes EP ", row.Text("ep"), " PP ",
                                      row.Text("pp"), " ", row.Text("dispatcher"), " ", row.Text("transport")),
                       .model = row.Text("model"),
                       .system = row.Text("gpu"),
                       .question = cell,
                       .place = PlaceOf(row, {"gpus", "tp", "pp", "vp", "ep", "mbs", "gbs", "seq"})};
  step.tokens_per_gpu = row.Number("gbs") * row.Number("seq") / std::max(1.0, row.Number("gpus"));
  SetMeasured(row.Number("step_s"), step.measured_s);
  const std::string hardware = HardwareMeant(row.Text("gpu")), model = ModelMeant(row.Text("model"));
  if (hardware.empty() || model.empty()) {
    step.reason = hardware.empty() ? "no such hardware ships" : "no such model ships";
    return step;
  }
  ASSIGN_OR_RETURN(ModelConfig config, ModelOf(model));
  if (row.Has("layers")) config.moe_layer.resize(static_cast<size_t>(LayersOf(row, "layers")), true);
  const StatusOr<v1::StepLayout> layout = LayoutOf(row);
  if (layout.ok()) {
    AskOnHardware(row, config, hardware, *layout, step);
  } else {
    step.reason = layout.status().message();
  }
  RETURN_IF_ERROR(row.status());
  return step;
}

}  // namespace

StatusOr<std::vector<MeasuredStep>> DispatcherSteps(const DataFolder& folder, Constants&) {
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(kDispatcherRuns));
  std::vector<MeasuredStep> steps;
  for (size_t i = 0; i < table.rows(); ++i) {
    ASSIGN_OR_RETURN(MeasuredStep step, StepOf(CsvRow(table, i)));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace moeplan::cli
