// A step's layout from messages and its answer to them. Pure.
#pragma once

#include <string_view>

#include "models/layout/step_answer.h"
#include "models/status.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/step.pb.h"

namespace moeplan {

// The stage of ZeRO where a request names none.
inline constexpr int kUsualZeroStage = 1;

// Sets what the message says of the layout and of how the step runs; the model, the GPUs and the batch stay. A capacity
// factor of 0 is dropless: as many rows are sent as with a factor of 1, or of the imbalance between experts' ranks.
// `path` names the message in errors. kInvalidInput: a value is wrong.
Status ReadStepLayout(const v1::StepLayout& message, std::string_view path, StepQuestion& question);

// The request's settings from those of a layout without degrees, `request.model` being set: all that ReadStepLayout
// reads but the degrees, the micro-batch and the schedule, which a ranking chooses. Errors are ReadStepLayout's.
Status ReadSettings(const v1::StepLayout& message, std::string_view path, LayoutRequest& request);

// A StepLayout as JSON, or a row of `moeplan layout --json` as it stands. kInvalidInput, with `source_name` in front:
// it is neither.
StatusOr<v1::StepLayout> StepLayoutFromJson(std::string_view text, std::string_view source_name);

// How the MoE layers of a layout with experts run: LANCET under Lancet's passes, else their plan's family.
v1::Schedule::Family MoeScheduleOf(const RankedLayout& ranked);

// What a row of a ranking says of how its step runs.
void SetSettings(const LayoutRequest& request, const RankedLayout& ranked, v1::RankedLayout& message);

// The layout of a question, every field that ReadStepLayout reads: a step of it is the question's. A capacity factor of
// 1 is said as dropless, which costs the same.
v1::StepLayout StepLayoutOf(const StepQuestion& question);

v1::StepResult ToProto(const StepAnswer& answer, int gpus);
void SetGain(const StepRatio& ratio, v1::StepResult& message);

}  // namespace moeplan
