// What readers of measured steps share.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/csv.h"
#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/measured_step.h"
#include "models/hardware/hardware.h"
#include "models/status.h"
#include "models/text.h"
#include "moeplan/v1/step.pb.h"

namespace moeplan::cli {

// What a cell says in a word of its own, as a value of the contract.
struct Word {
  const char* begins;
  int value;
};
template <typename Kind, size_t kWords>
StatusOr<Kind> Named(const CsvRow& row, const char* column, const Word (&words)[kWords]) {
  const std::string text = row.Text(column);
  for (const auto& [begins, value] : words) {
    if (text.empty() ? *begins == '\0' : (*begins != '\0' && text.starts_with(begins))) return static_cast<Kind>(value);
  }
  return Unimplemented(StrCat(column, ": found '", text, "', which is not priced"));
}

// Layers, at most one more than any model may have, so that it is refused.
int LayersOf(CsvRow& row, const char* column);

// Sets a measurement; what is not above 0 was not measured.
void SetMeasured(double value, std::optional<double>& measured);

// The logarithms of these columns; an empty cell is 1.
std::vector<double> PlaceOf(CsvRow& row, std::initializer_list<const char*> columns);

// The degrees and the micro-batch of a row, from columns of the usual names (tp, pp, cp, ep, etp, dp, mbs, vp).
v1::StepLayout DegreesOf(CsvRow& row, bool has_experts);

// Megatron Core's dispatch as a schedule: with tensor parallelism each rank sends its own tokens, as Parm's S1 does.
void SetUsualSchedule(v1::StepLayout& layout);

// Reads the columns `recompute` (none, selective or full) and `dispatcher`. kUnimplemented: they say something else.
Status ReadRecompute(const CsvRow& row, v1::StepLayout& layout);
Status ReadDispatcher(const CsvRow& row, v1::StepLayout& layout);

// The model that ships and that step.model means, with as many layers as the row says. Absent: none does, which is the
// step's reason then.
std::optional<ModelConfig> AskedModel(CsvRow& row, MeasuredStep& step);

// Uses each figure, of all machines at once: what is assumed of one is mostly that of another.
void UseFigures(Constants& constants, Hardware& hardware);

// Makes the step ask for that layout on the hardware that step.system means, or says in its reason why it cannot. The
// row's gpus, gbs and seq are read; figures of the hardware are constants.
void AskOnHardware(CsvRow& row, const ModelConfig& model, const StatusOr<v1::StepLayout>& layout, Constants& constants,
                   MeasuredStep& step);

}  // namespace moeplan::cli
