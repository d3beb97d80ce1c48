// Exported layouts and checked settings as messages.
#pragma once

#include "models/model/model_config.h"
#include "models/status.h"
#include "moeplan/v1/step.pb.h"
#include "moeplan/v1/target.pb.h"
#include "planner/targets/settings_text.h"
#include "planner/targets/target.h"
#include "planner/targets/translate.h"

namespace moeplan::planner {

// A question gives these beside the model; 0: it does not say.
struct LaunchNumbers {
  int gpus = 0, global_batch = 0, sequence_length = 0;
};
Facts FactsOf(const LaunchNumbers& numbers);
Facts FactsOf(const ModelConfig& model, const LaunchNumbers& numbers);

// The layout, as far as it goes, in the settings of the target.
v1::ExportedLayout Export(const Target& target, const v1::StepLayout& layout, const Facts& facts);
// The same of a known model. Stages that come out uneven are told one by one.
v1::ExportedLayout Export(const Target& target, v1::StepLayout layout, const ModelConfig& model,
                          const LaunchNumbers& numbers);

// kInternal: the table says a layout that no message can hold, which is a defect of the table.
StatusOr<v1::CheckedSettings> Check(const Target& target, const SettingsRead& read, const Facts& facts);

}  // namespace moeplan::planner
