#include "cli/reproduce/steps/dispatchers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cli/reproduce/steps/step_row.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

StatusOr<v1::StepLayout> DispatcherLayoutOf(CsvRow& row) {
  v1::StepLayout layout = DegreesOf(row, /*has_experts=*/true);
  RETURN_IF_ERROR(ReadRecompute(row, layout));
  RETURN_IF_ERROR(ReadDispatcher(row, layout));
  constexpr Word kTransports[] = {{"", v1::Transport::NCCL},
                                  {"NCCL", v1::Transport::NCCL},
                                  {"NVSHMEM", v1::Transport::NVSHMEM},
                                  {"UCCL", v1::Transport::UCCL}};
  ASSIGN_OR_RETURN(const auto transport, Named<v1::Transport::Kind>(row, "transport", kTransports));
  layout.set_transport(transport);
  layout.set_overlap_expert_parallel(row.Count("overlap_ep") > 0);
  SetUsualSchedule(layout);
  return layout;
}

StatusOr<MeasuredStep> DispatcherStepOf(CsvRow row, Constants& constants) {
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
  const auto config = AskedModel(row, step);
  if (config) AskOnHardware(row, *config, DispatcherLayoutOf(row), constants, step);
  RETURN_IF_ERROR(row.status());
  return step;
}

}  // namespace

StatusOr<std::vector<MeasuredStep>> DispatcherSteps(const DataFolder& folder, Constants& constants) {
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(kDispatcherRuns));
  std::vector<MeasuredStep> steps;
  for (size_t i = 0; i < table.rows(); ++i) {
    ASSIGN_OR_RETURN(MeasuredStep step, DispatcherStepOf(CsvRow(table, i), constants));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace moeplan::cli
