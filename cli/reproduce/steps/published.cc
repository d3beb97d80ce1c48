#include "cli/reproduce/steps/published.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cli/reproduce/steps/step_row.h"
#include "models/step/recompute.h"
#include "models/text.h"
#include "planner/shipped/names.h"

namespace moeplan::cli {
namespace {

bool Contains(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }

// Megatron's pipeline layout, such as "Et*4|(t*4|)*14tmL", as layers of each virtual stage: t is one, | ends a stage,
// E, m and L are the embedding, layers that predict further tokens, and the loss. Absent: it is no such text.
class PipelineText {
  static constexpr size_t kMostText = 1024;

 public:
  explicit PipelineText(std::string_view text) : text_(text), failed_(text.size() > kMostText) {}

  struct Stages {
    std::vector<int> layers;  // Of each virtual stage.
    int next_tokens = 0;
  };
  std::optional<Stages> Read() {
    const std::string expanded = Expanded(/*closing=*/false);
    if (failed_ || !text_.empty()) return std::nullopt;
    Stages stages = {.layers = {0}};
    for (const char c : expanded) {
      if (c == '|') {
        stages.layers.push_back(0);
      } else if (c == 't') {
        ++stages.layers.back();
      } else if (c == 'm') {
        ++stages.next_tokens;
      } else if (c != 'E' && c != 'L') {
        return std::nullopt;
      }
    }
    return stages;
  }

 private:
  std::string Expanded(bool closing) {
    std::string all;
    while (!text_.empty() && !failed_) {
      if (text_.front() == ')') {
        failed_ = failed_ || !closing;
        return all;
      }
      std::string item(1, text_.front());
      text_.remove_prefix(1);
      if (item == "(") {
        item = Expanded(/*closing=*/true);
        failed_ = failed_ || !text_.starts_with(')');
        if (!failed_) text_.remove_prefix(1);
      }
      const int times = Times();
      if (all.size() + item.size() * static_cast<size_t>(times) > kMostText) failed_ = true;
      for (int i = 0; i < times && !failed_; ++i) all += item;
    }
    failed_ = failed_ || closing;
    return all;
  }

  int Times() {
    if (!text_.starts_with('*')) return 1;
    text_.remove_prefix(1);
    int times = 0;
    while (!text_.empty() && text_.front() >= '0' && text_.front() <= '9' && times < 1000) {
      times = 10 * times + (text_.front() - '0');
      text_.remove_prefix(1);
    }
    failed_ = failed_ || times == 0;
    return times;
  }

  std::string_view text_;
  bool failed_;
};

// How many layers of a stage are computed again, 0 for all; absent: they are not, or single operators are.
std::optional<int> FullyRecomputed(const std::string& recompute) {
  if (recompute == "full" || recompute == "activation checkpointing") return 0;
  int layers = 0, end = 0;
  const bool some = std::sscanf(recompute.c_str(), "full %d layers%n", &layers, &end) == 1 && layers > 0;
  return some && end == static_cast<int>(recompute.size()) ? std::optional(layers) : std::nullopt;
}

// Single parts of layers, as a list of Megatron Core's names in quotes.
void AddModules(const std::string& recompute, v1::StepLayout& layout) {
  for (int i = 0; i < kRecomputeModules; ++i) {
    std::string name = StrCat("'", Name(static_cast<RecomputeModule>(i)), "'");
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!Contains(recompute, name.c_str())) continue;
    layout.set_recompute(v1::Recompute::SELECTIVE);
    layout.add_recompute_modules(static_cast<v1::RecomputeModule::Kind>(i));
  }
}

bool IsFromMegatronBridge(CsvRow& row) {
  const std::string source = row.Text("source");
  return Contains(source, "Megatron-Bridge") || Contains(source, "nemo-framework");
}

// Recipes whose layers do not divide into virtual stages count the embedding and the loss as a layer each where that
// divides (Megatron Core's account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split).
void CountEnds(int layers, v1::StepLayout& layout) {
  const int stages = layout.pipeline_parallel() * layout.virtual_stages();
  if (layout.pipeline_parallel() < 2 || stages > kMostLayers || layers % stages == 0 || (layers + 2) % stages != 0)
    return;
  for (int i = 0; i < stages; ++i) {
    const int ends = (i == 0 ? 1 : 0) + (i == stages - 1 ? 1 : 0);
    layout.add_stages((layers + 2) / stages - ends);
  }
}

StatusOr<v1::StepLayout> PublishedLayoutOf(CsvRow& row, const ModelConfig& model) {
  const bool has_experts = model.moe_layers() > 0;
  v1::StepLayout layout = DegreesOf(row, has_experts);
  constexpr Word kPrecisions[] = {{"BF16", v1::Precision::BF16},
                                  {"FP8-MX", v1::Precision::MXFP8},
                                  {"FP8", v1::Precision::FP8},
                                  {"MXFP8", v1::Precision::MXFP8},
                                  {"NVFP4", v1::Precision::NVFP4}};
  ASSIGN_OR_RETURN(const auto precision, Named<v1::Precision::Kind>(row, "precision", kPrecisions));
  layout.set_precision(precision);
  layout.set_zero_stage(row.Count("fsdp") > 1 ? 3 : 1);
  const std::string recompute = row.Text("recompute");
  if (const auto layers = FullyRecomputed(recompute)) {
    layout.set_recompute(v1::Recompute::FULL);
    layout.set_recompute_layers(*layers);
  }
  AddModules(recompute, layout);
  // Megatron-Bridge's recipes for speed sum gradients in BF16, and run exchanges over TP beside products, but not with
  // NVFP4 (scripts/performance/configs at 0013c9a8, 2026).
  if (IsFromMegatronBridge(row)) {
    layout.set_gradient_precision(v1::GradientPrecision::BF16);
    layout.set_overlap_tensor_parallel(layout.tensor_parallel() > 1 && precision != v1::Precision::NVFP4);
  }
  if (const std::string text = row.Text("pp_layout"); !text.empty()) {
    const auto stages = PipelineText(text).Read();
    if (!stages) return Unimplemented(StrCat("pp_layout: found '", text, "', which is not priced"));
    layout.mutable_stages()->Assign(stages->layers.begin(), stages->layers.end());
    layout.set_mtp_layers(stages->next_tokens);
  } else {
    CountEnds(model.layers(), layout);
  }
  if (has_experts) {
    SetUsualSchedule(layout);
    RETURN_IF_ERROR(ReadDispatcher(row, layout));
    // Megatron-Bridge's recipes set both together.
    const bool overlaps = row.Count("moe_a2a_overlap") > 0;
    layout.set_overlap_expert_parallel(overlaps);
    layout.set_delay_weight_gradients(overlaps);
  }
  return layout;
}

std::string SetOf(CsvRow& row) {
  const std::string task = row.Text("task");
  if ((!task.empty() && task != "pretrain") || planner::MeansHybridModel(row.Text("model"))) return "published-other";
  if (row.Count("moe") == 0) return "published-dense";
  return row.Text("precision") == "BF16" ? "published-moe-bf16" : "published-moe-low";
}

StatusOr<MeasuredStep> PublishedStepOf(CsvRow row, Constants& constants) {
  MeasuredStep step = {
      .set = SetOf(row),
      .name = StrCat(row.Text("model"), " ", row.Text("system"), " ", row.Text("gpus"), " ", row.Text("precision"), " ",
                     row.Text("release")),
      .model = row.Text("model"),
      .system = row.Text("system"),
      .question = StrCat(row.Text("model"), " ", row.Text("system"), " ", row.Text("gpus"), " ", row.Text("precision"),
                         " ", row.Text("gbs"), " ", row.Text("seq"), " ", row.Text("release"), " ", row.Text("task")),
      .release = {row.Text("system"), row.Text("precision"), row.Text("release")},
      .place = PlaceOf(row, {"gpus", "gbs", "mbs", "seq", "fsdp", "tp", "pp", "cp", "vp", "ep"})};
  step.open = {
      .dispatcher = !row.Has("dispatcher"), .overlap = !row.Has("moe_a2a_overlap"), .recompute = !row.Has("recompute")};
  // How far precisions are apart, in halvings of an element.
  const std::string precision = row.Text("precision");
  const int halvings = precision == "BF16" ? 4 : precision == "NVFP4" ? 2 : 3;
  step.place.push_back(halvings);
  step.job = StrCat(row.Text("model"), " ", row.Text("system"), " ", row.Text("gpus"), " ", row.Text("gbs"), " ",
                    row.Text("seq"), " ", halvings, " ", Contains(row.Text("note"), "tokendrop"));
  if (IsFromMegatronBridge(row)) step.trained_with = "bridge";
  step.tokens_per_gpu = row.Number("gbs") * row.Number("seq") / std::max(1.0, row.Number("gpus"));
  SetMeasured(row.Number("step_s"), step.measured_s);
  const auto config = AskedModel(row, step);
  if (config) AskOnHardware(row, *config, PublishedLayoutOf(row, *config), constants, step);
  RETURN_IF_ERROR(row.status());
  return step;
}

}  // namespace

StatusOr<std::vector<MeasuredStep>> PublishedSteps(const DataFolder& folder, Constants& constants) {
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(kPublishedJobs));
  std::vector<MeasuredStep> steps;
  for (size_t i = 0; i < table.rows(); ++i) {
    ASSIGN_OR_RETURN(MeasuredStep step, PublishedStepOf(CsvRow(table, i), constants));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace moeplan::cli
