#include "cli/reproduce/steps/step_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/shipped/names.h"
#include "proto/convert/step.h"

namespace moeplan::cli {

int LayersOf(CsvRow& row, const char* column) { return std::min(row.Count(column), kMostLayers + 1); }

void SetMeasured(double value, std::optional<double>& measured) {
  if (value > 0) measured = value;
}

std::vector<double> PlaceOf(CsvRow& row, std::initializer_list<const char*> columns) {
  std::vector<double> place;
  for (const char* column : columns) place.push_back(std::log2(std::max(1, row.Count(column, 1))));
  return place;
}

v1::StepLayout DegreesOf(CsvRow& row, bool has_experts) {
  v1::StepLayout layout;
  layout.set_tensor_parallel(row.Count("tp", 1));
  layout.set_pipeline_parallel(row.Count("pp", 1));
  layout.set_context_parallel(row.Count("cp", 1));
  layout.set_expert_parallel(has_experts ? row.Count("ep", 1) : 1);
  layout.set_expert_sharding_parallel(has_experts ? row.Count("etp", 1) : 1);
  if (row.Has("dp")) layout.set_data_parallel(row.Count("dp", 1));
  layout.set_micro_batch(row.Count("mbs", 1));
  layout.set_virtual_stages(row.Count("vp", 1));
  return layout;
}

void SetUsualSchedule(v1::StepLayout& layout) {
  layout.set_schedule(layout.tensor_parallel() > 1 ? v1::Schedule::PARM_S1 : v1::Schedule::BASELINE);
}

Status ReadRecompute(const CsvRow& row, v1::StepLayout& layout) {
  constexpr Word kWords[] = {{"", v1::Recompute::NONE},
                             {"none", v1::Recompute::NONE},
                             {"selective", v1::Recompute::SELECTIVE},
                             {"full", v1::Recompute::FULL}};
  ASSIGN_OR_RETURN(const auto recompute, Named<v1::Recompute::Kind>(row, "recompute", kWords));
  layout.set_recompute(recompute);
  return OkStatus();
}

Status ReadDispatcher(const CsvRow& row, v1::StepLayout& layout) {
  constexpr Word kWords[] = {{"", v1::Dispatcher::ALL_TO_ALL},
                             {"alltoall", v1::Dispatcher::ALL_TO_ALL},
                             {"allgather", v1::Dispatcher::ALL_GATHER},
                             {"deepep", v1::Dispatcher::DEEPEP},
                             {"hybridep", v1::Dispatcher::HYBRID_EP}};
  ASSIGN_OR_RETURN(const auto dispatcher, Named<v1::Dispatcher::Kind>(row, "dispatcher", kWords));
  layout.set_dispatcher(dispatcher);
  return OkStatus();
}

std::optional<ModelConfig> AskedModel(CsvRow& row, MeasuredStep& step) {
  const std::string name = planner::ModelMeant(step.model);
  StatusOr<ModelConfig> model = planner::NamedModel(name);
  if (name.empty() || !model.ok()) {
    step.reason = name.empty() ? "no such model ships" : model.status().message();
    return std::nullopt;
  }
  if (row.Has("layers")) model->moe_layer.resize(static_cast<size_t>(LayersOf(row, "layers")), true);
  return *std::move(model);
}

void UseFigures(Constants& constants, Hardware& hardware) {
  for (const auto& [name, figure] : HardwareFigures()) {
    const Constant constant = {.source = StrCat(name, " of deploy/hardware/*.json, which name a source of each")};
    double& value = (hardware.*figure).value;
    value = constants.Use(StrCat("hardware ", name), value, constant);
  }
}

void AskOnHardware(CsvRow& row, const ModelConfig& model, const StatusOr<v1::StepLayout>& layout, Constants& constants,
                   MeasuredStep& step) {
  const std::string hardware = planner::HardwareMeant(step.system);
  if (hardware.empty() || !layout.ok()) {
    step.reason = hardware.empty() ? "no such hardware ships" : layout.status().message();
    return;
  }
  StepQuestion question;
  if (const Status read = ReadStepLayout(*layout, "", question); !read.ok()) {
    step.reason = read.message();
    return;
  }
  question.request.model = model;
  question.request.gpus = row.Count("gpus");
  question.request.global_batch = row.Count("gbs");
  question.request.sequence_length = row.Count("seq");
  auto profile = planner::HardwareProfile(hardware, question.request.gpus, model,
                                          [&](Hardware& figures) { UseFigures(constants, figures); });
  if (!profile.ok()) {
    step.reason = profile.status().message();
    return;
  }
  step.asks = std::move(question);
  step.profile = std::make_shared<const Profile>(*std::move(profile));
}

}  // namespace moeplan::cli
