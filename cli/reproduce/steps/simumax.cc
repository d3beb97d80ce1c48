#include "cli/reproduce/steps/simumax.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cli/reproduce/steps/simumax_profile.h"
#include "cli/reproduce/steps/step_row.h"
#include "cli/reproduce/steps/units.h"
#include "models/text.h"
#include "moeplan/v1/step.pb.h"
#include "proto/convert/step.h"

namespace moeplan::cli {
namespace {

// Megatron pads the vocabulary so that each tensor-parallel rank has whole blocks of it.
constexpr int kVocabularyBlock = 128, kMostTensorRanks = 1024;

bool Begins(const std::string& text, const char* word) { return text.empty() || text.starts_with(word); }

ModelConfig ModelOf(CsvRow& row) {
  ModelConfig model = {.model_type = row.Text("model"),
                       .model_dim = row.Count("hidden"),
                       .dense_hidden_dim = row.Count("ffn"),
                       .heads = row.Count("heads"),
                       .kv_heads = row.Count("kv_heads", row.Count("heads")),
                       .head_dim = row.Count("head_dim"),
                       .gated_mlp = true,
                       .tied_embeddings = false};
  const bool has_experts = row.Has("experts");
  const int layers = LayersOf(row, "layers"), dense = has_experts ? row.Count("dense_layers") : layers;
  for (int i = 0; i < layers; ++i) model.moe_layer.push_back(i >= dense);
  if (has_experts) {
    model.experts = row.Count("experts"), model.top_k = row.Count("topk");
    model.expert_hidden_dim = row.Count("moe_ffn"), model.shared_hidden_dim = row.Count("shared_expert_ffn");
  }
  if (row.Text("attention") == "mla") {
    model.latent_attention = {.q_rank = row.Count("q_lora_rank"),
                              .kv_rank = row.Count("kv_lora_rank"),
                              .nope_head_dim = row.Count("qk_nope_dim"),
                              .rope_head_dim = row.Count("qk_rope_dim"),
                              .value_head_dim = row.Count("v_head_dim")};
  }
  // A degree that no layout can have is refused later.
  const int tensor = std::clamp(row.Count("tp", 1), 1, kMostTensorRanks), block = kVocabularyBlock * tensor;
  const int vocabulary = std::min(row.Count("vocab"), kMostDimension);
  model.vocab = (vocabulary + block - 1) / block * block;
  return model;
}

StatusOr<v1::StepLayout> SimumaxLayoutOf(CsvRow& row) {
  const bool has_experts = row.Has("experts");
  v1::StepLayout layout = DegreesOf(row, has_experts);
  layout.set_zero_stage(row.Count("zero"));
  layout.set_sequence_parallel(row.Count("sp") > 0);
  layout.set_capacity_factor(row.Number("capacity_factor"));
  RETURN_IF_ERROR(ReadRecompute(row, layout));
  constexpr Word kContexts[] = {{"", v1::ContextExchange::KEYS_VALUES},
                                {"p2p", v1::ContextExchange::KEYS_VALUES},
                                {"a2a", v1::ContextExchange::ALL_TO_ALL}};
  ASSIGN_OR_RETURN(const auto contexts, Named<v1::ContextExchange::Kind>(row, "cp_comm", kContexts));
  layout.set_context_exchange(contexts);
  RETURN_IF_ERROR(ReadDispatcher(row, layout));
  const bool overlaps = !Begins(row.Text("overlap"), "none");
  layout.set_overlap_gradients(overlaps);
  layout.set_overlap_shared_experts(overlaps);
  if (has_experts) SetUsualSchedule(layout);
  return layout;
}

StatusOr<StepQuestion> QuestionOf(CsvRow& row) {
  if (!Begins(row.Text("precision"), "bf16")) {
    return Unimplemented(StrCat("precision: found '", row.Text("precision"), "', which is not priced"));
  }
  StepQuestion question;
  ASSIGN_OR_RETURN(const v1::StepLayout layout, SimumaxLayoutOf(row));
  RETURN_IF_ERROR(ReadStepLayout(layout, "", question));
  question.request.model = ModelOf(row);
  question.request.gpus = row.Count("gpus");
  question.request.global_batch = row.Count("gbs");
  question.request.sequence_length = row.Count("seq");
  return question;
}

std::string SetOf(CsvRow& row, const std::string& machine) {
  return StrCat("simumax-", machine, "-", row.Count("cp", 1) > 1 ? "cp" : row.Text("kind"));
}

class Profiles {
 public:
  Profiles(const DataFolder& folder, Constants& constants) : folder_(folder), constants_(constants) {}

  StatusOr<std::shared_ptr<const Profile>> Of(CsvRow& row, const std::string& machine) {
    const SimumaxUse use = {.fused_loss = row.Text("ce_fusion") == "1",
                            .model_dim = row.Count("hidden"),
                            .experts = row.Count("experts"),
                            .top_k = std::max(1, row.Count("topk")),
                            .gpus_per_node = row.Count("gpus", 1) / std::max(1, row.Count("nodes", 1))};
    std::shared_ptr<const Profile>& known = known_[{machine, use}];
    if (known == nullptr) {
      ASSIGN_OR_RETURN(Profile profile, SimumaxProfile(folder_, machine, use, constants_));
      known = std::make_shared<const Profile>(std::move(profile));
    }
    return known;
  }

 private:
  const DataFolder& folder_;
  Constants& constants_;
  std::map<std::pair<std::string, SimumaxUse>, std::shared_ptr<const Profile>> known_;
};

StatusOr<MeasuredStep> SimumaxStepOf(CsvRow row, Profiles& profiles) {
  const std::string machine = MachineOf(row.Text("gpu"));
  MeasuredStep step = {
      .set = SetOf(row, machine),
      .name = row.Text("case"),
      .model = row.Text("model"),
      .system = row.Text("gpu"),
      .question = StrCat(row.Text("model"), " ", row.Text("layers"), " ", row.Text("gpus"), " ", row.Text("seq"), " ",
                         row.Text("micro_batches")),
      .place = PlaceOf(row, {"tp", "pp", "cp", "ep", "etp", "dp", "vp", "mbs", "micro_batches", "seq", "layers"})};
  step.tokens_per_gpu = row.Number("gbs") * row.Number("seq") / std::max(1.0, row.Number("gpus"));
  SetMeasured(row.Number("measured_ms") * kMilli, step.measured_s);
  if (row.Number("simumax_ms") > 0) {
    step.peer_s = row.Number("simumax_ms") * kMilli;
  } else if (row.Has("simumax_err_pct") && step.measured_s) {
    step.peer_s = *step.measured_s * (1 + row.Number("simumax_err_pct") / 100);
  }
  SetMeasured(row.Number("measured_alloc_gib") * kGibi, step.measured_memory_bytes);
  StatusOr<StepQuestion> question = QuestionOf(row);
  RETURN_IF_ERROR(row.status());
  if (!question.ok()) {
    step.reason = question.status().message();
    return step;
  }
  auto profile = profiles.Of(row, machine);
  if (profile.status().code() == StatusCode::kNotFound) {
    step.reason = profile.status().message();
    return step;
  }
  RETURN_IF_ERROR(profile.status());
  step.asks = *std::move(question);
  step.profile = *std::move(profile);
  return step;
}

}  // namespace

StatusOr<std::vector<MeasuredStep>> SimumaxSteps(const DataFolder& folder, Constants& constants) {
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(kSimumaxSteps));
  Profiles profiles(folder, constants);
  std::vector<MeasuredStep> steps;
  for (size_t i = 0; i < table.rows(); ++i) {
    ASSIGN_OR_RETURN(MeasuredStep step, SimumaxStepOf(CsvRow(table, i), profiles));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace moeplan::cli
