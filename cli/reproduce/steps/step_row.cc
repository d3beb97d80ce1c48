#include "cli/reproduce/steps/step_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/known_names.h"
#include "proto/convert/step.h"

namespace moeplan::cli {

int LayersOf(CsvRow& row, const char* column) {
  constexpr int kMostLayers = 4096;
  return std::min(row.Count(column), kMostLayers + 1);
}

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

void AskOnHardware(CsvRow& row, const ModelConfig& model, const std::string& hardware, const v1::StepLayout& layout,
                   MeasuredStep& step) {
  StepQuestion question;
  if (const Status read = ReadStepLayout(layout, "", question); !read.ok()) {
    step.reason = read.message();
    return;
  }
  question.request.model = model;
  question.request.gpus = row.Count("gpus");
  question.request.global_batch = row.Count("gbs");
  question.request.sequence_length = row.Count("seq");
  auto profile = HardwareProfile(hardware, question.request.gpus, model);
  if (!profile.ok()) {
    step.reason = profile.status().message();
    return;
  }
  step.asks = std::move(question);
  step.profile = std::make_shared<const Profile>(*std::move(profile));
}

}  // namespace moeplan::cli
