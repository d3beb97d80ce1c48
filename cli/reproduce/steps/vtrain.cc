#include "cli/reproduce/steps/vtrain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "cli/reproduce/steps/step_row.h"
#include "cli/reproduce/steps/units.h"
#include "models/text.h"
#include "planner/shipped/files.h"
#include "planner/shipped/names.h"
#include "proto/convert/step.h"

namespace moeplan::cli {
namespace {

constexpr const char *kBegin = "vtrain_", *kEnd = ".csv";
constexpr int kGpusOfNode = 8;
// Of GPT-2, padded as Megatron does; the files do not say.
constexpr int kVocabulary = 51200;

std::string AllReduceFile(std::string_view machine, int ranks) {
  return StrCat("vtrain_allreduce/", machine, "_gpu", ranks, ".csv");
}

StatusOr<LogLog> AllReduceCurve(const DataFolder& folder, std::string_view machine, int ranks) {
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(AllReduceFile(machine, ranks)));
  LogLog curve;
  for (size_t i = 0; i < table.rows(); ++i) {
    CsvRow row(table, i);
    const TimePoint point = {.size = row.Number("size(B)"), .time_s = row.Number("time(ns)") * kNano};
    RETURN_IF_ERROR(row.status());
    if (point.time_s > 0 && (curve.points.empty() || point.size > curve.points.back().size)) {
      curve.points.push_back(point);
    }
  }
  if (curve.points.empty()) return InvalidInput(StrCat(AllReduceFile(machine, ranks), ": found no sizes"));
  return curve;
}

// Of the machines whose all-reduces are there, the hardware whose figure is nearest; the files of iterations name none.
struct Machine {
  std::string word, hardware;
};
StatusOr<std::optional<Machine>> FindMachine(const DataFolder& folder) {
  std::optional<Machine> nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& name : planner::ShippedNames("hardware")) {
    const std::string word = name.substr(0, name.find('-'));
    if (!folder.Has(AllReduceFile(word, kGpusOfNode))) continue;
    ASSIGN_OR_RETURN(const LogLog curve, AllReduceCurve(folder, word, kGpusOfNode));
    ASSIGN_OR_RETURN(const Hardware hardware, planner::HardwareOf(name));
    const TimePoint& last = curve.points.back();
    const double rate = last.size * BusFactor(Collective::kAllReduce, kGpusOfNode) / last.time_s;
    const double distance = std::abs(std::log(rate / hardware.all_reduce_bytes_per_s.value));
    if (distance < least) least = distance, nearest = Machine{word, name};
  }
  return nearest;
}

class VtrainReader {
 public:
  VtrainReader(const DataFolder& folder, std::string set, Constants& constants)
      : folder_(folder), set_(std::move(set)), constants_(constants) {}

  StatusOr<MeasuredStep> StepOf(CsvRow row, const std::optional<Machine>& machine) const {
    const int gpus = row.Count("# GPUs"), batch = row.Count("global batch"), hidden = row.Count("hidden size");
    const int layers = LayersOf(row, "# layers"), heads = row.Count("attention heads");
    const int sequence = row.Count("sequence length");
    v1::StepLayout layout;
    layout.set_tensor_parallel(row.Count("tensor parallelism", 1));
    layout.set_data_parallel(row.Count("data parallelism", 1));
    layout.set_pipeline_parallel(row.Count("pipeline parallelism", 1));
    layout.set_micro_batch(row.Count("micro batch", 1));
    // Megatron-LM of 2022: scores are stored, rows are not cut over TP, gradients are summed after the step.
    layout.set_zero_stage(0);
    layout.set_sequence_parallel(false);
    layout.set_attention(v1::AttentionKernel::STORED);
    layout.set_overlap_gradients(false);
    MeasuredStep step = {
        .set = set_,
        .name = StrCat("h", hidden, " l", layers, " b", batch, " tp", layout.tensor_parallel(), " dp",
                       layout.data_parallel(), " pp", layout.pipeline_parallel(), " mb", layout.micro_batch()),
        .model = StrCat("h", hidden, " l", layers),
        .system = machine ? machine->word : "",
        .question = StrCat(gpus, " ", batch, " ", hidden, " ", layers, " ", sequence),
        .place = PlaceOf(row, {"# GPUs", "global batch", "micro batch", "tensor parallelism", "data parallelism",
                               "pipeline parallelism", "sequence length"}),
        .tokens_per_gpu = 1.0 * batch * sequence / std::max(1, gpus)};
    SetMeasured(row.Number("iteration time (ms)") * kMilli, step.measured_s);
    RETURN_IF_ERROR(row.status());
    if (!machine) {
      step.reason = "no all-reduces of a machine that ships are in vtrain_allreduce";
      return step;
    }
    StepQuestion question;
    RETURN_IF_ERROR(ReadStepLayout(layout, "", question));
    question.request.gpus = gpus;
    question.request.global_batch = batch;
    question.request.sequence_length = sequence;
    question.request.model = {.model_type = "gpt",
                              .moe_layer = std::vector<bool>(static_cast<size_t>(layers), false),
                              .model_dim = hidden,
                              .dense_hidden_dim = 4 * hidden,
                              .heads = heads,
                              .kv_heads = heads,
                              .head_dim = heads > 0 ? hidden / heads : 0,
                              .vocab = kVocabulary};
    auto profile = ProfileOf(*machine, gpus, question.request.model);
    if (profile.ok()) {
      step.profile = *std::move(profile);
      step.asks = std::move(question);
    } else {
      step.reason = profile.status().message();
    }
    return step;
  }

 private:
  // The hardware's, with the all-reduces that were measured.
  StatusOr<std::shared_ptr<const Profile>> ProfileOf(const Machine& machine, int gpus, const ModelConfig& model) const {
    ASSIGN_OR_RETURN(Profile profile,
                     planner::HardwareProfile(machine.hardware, std::max(1, gpus), model,
                                              [this](Hardware& figures) { UseFigures(constants_, figures); }));
    for (CollectiveModel& entry : profile.collectives) {
      const int ranks = entry.key.group.size;
      if (entry.key.collective != Collective::kAllReduce || !folder_.Has(AllReduceFile(machine.word, ranks))) continue;
      ASSIGN_OR_RETURN(LogLog curve, AllReduceCurve(folder_, machine.word, ranks));
      const auto fit = entry.model.fit;
      entry.model = MakeCostModel(std::move(curve));
      entry.model.fit = fit;
    }
    return std::make_shared<const Profile>(std::move(profile));
  }

  const DataFolder& folder_;
  std::string set_;
  Constants& constants_;
};

// "vtrain_single_tenth.csv" → "vtrain-single-tenth".
std::string SetOf(std::string name) {
  name.resize(name.size() - std::string_view(kEnd).size());
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

StatusOr<std::vector<MeasuredStep>> VtrainSteps(const DataFolder& folder, Constants& constants) {
  ASSIGN_OR_RETURN(const std::optional<Machine> machine, FindMachine(folder));
  std::vector<MeasuredStep> steps;
  for (const std::string& name : folder.Names(kBegin, kEnd)) {
    ASSIGN_OR_RETURN(const CsvTable table, folder.Table(name));
    const VtrainReader reader(folder, SetOf(name), constants);
    for (size_t i = 0; i < table.rows(); ++i) {
      ASSIGN_OR_RETURN(MeasuredStep step, reader.StepOf(CsvRow(table, i), machine));
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

}  // namespace moeplan::cli
