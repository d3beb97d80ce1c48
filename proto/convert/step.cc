#include "proto/convert/step.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "proto/convert/enums.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan {
namespace {

// A JSON text may be a row of a ranking, and may say where contexts lie. Whoever reads it as a message tells what is
// wrong with it.
struct RowText {
  bool is_row = false, says_contexts = false;
};
RowText RowTextOf(std::string_view text) {
  if (text.size() > kMaxJsonBytes) return {};
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("layout")) return {};
  const auto says = [&](const char* field) { return json.contains(field) && !json[field].is_null(); };
  return {.is_row = true, .says_contexts = says("horizontalContexts") || says("horizontal_contexts")};
}

enum class Gradients { kFp32, kBf16 };

int OneUnlessGiven(bool given, int value) { return given ? value : 1; }

v1::StepLayout FromRow(const v1::RankedLayout& row, bool says_contexts) {
  v1::StepLayout layout;
  const v1::Layout& degrees = row.layout();
  if (degrees.has_tensor_parallel()) layout.set_tensor_parallel(degrees.tensor_parallel());
  if (degrees.has_expert_parallel()) layout.set_expert_parallel(degrees.expert_parallel());
  if (degrees.has_expert_sharding_parallel()) layout.set_expert_sharding_parallel(degrees.expert_sharding_parallel());
  if (degrees.has_context_parallel()) layout.set_context_parallel(degrees.context_parallel());
  if (degrees.has_pipeline_parallel()) layout.set_pipeline_parallel(degrees.pipeline_parallel());
  if (degrees.has_data_parallel()) layout.set_data_parallel(degrees.data_parallel());
  if (row.micro_batch() != 0) layout.set_micro_batch(row.micro_batch());
  if (row.has_zero_stage()) layout.set_zero_stage(row.zero_stage());
  layout.set_recompute(row.recompute());
  if (row.has_sequence_parallel()) layout.set_sequence_parallel(row.sequence_parallel());
  layout.set_attention(row.attention());
  layout.set_capacity_factor(row.capacity_factor());
  layout.set_context_exchange(row.context_exchange());
  if (row.has_overlap_gradients()) layout.set_overlap_gradients(row.overlap_gradients());
  if (row.has_overlap_shared_experts()) layout.set_overlap_shared_experts(row.overlap_shared_experts());
  if (row.has_virtual_stages()) layout.set_virtual_stages(row.virtual_stages());
  *layout.mutable_stages() = row.stages();
  layout.set_dispatcher(row.dispatcher());
  layout.set_transport(row.transport());
  layout.set_overlap_expert_parallel(row.overlap_expert_parallel());
  layout.set_delay_weight_gradients(row.delay_weight_gradients());
  layout.set_precision(row.precision());
  layout.set_recompute_layers(row.recompute_layers());
  if (row.has_recompute_chunk()) layout.set_recompute_chunk(row.recompute_chunk());
  layout.set_overlap_tensor_parallel(row.overlap_tensor_parallel());
  layout.set_mtp_layers(row.mtp_layers());
  *layout.mutable_recompute_modules() = row.recompute_modules();
  layout.set_gradient_precision(row.gradient_precision());
  if (says_contexts) layout.set_horizontal_contexts(row.horizontal_contexts());
  layout.set_schedule(row.schedule());
  if (row.has_plan()) *layout.mutable_plan() = row.plan();
  return layout;
}

v1::StepMemory StepMemoryOf(const RankMemory& memory) {
  v1::StepMemory message;
  message.set_weights(memory.weight_bytes);
  message.set_gradients(memory.gradient_bytes);
  message.set_optimizer(memory.optimizer_bytes);
  message.set_activations(memory.kept_bytes);
  message.set_buffers(memory.running_bytes);
  message.set_logits(memory.logit_bytes);
  message.set_other(memory.other_bytes);
  return message;
}

}  // namespace

Status ReadStepLayout(const v1::StepLayout& message, std::string_view path, StepQuestion& question) {
  question.layout = {.tensor_parallel = OneUnlessGiven(message.has_tensor_parallel(), message.tensor_parallel()),
                     .expert_parallel = OneUnlessGiven(message.has_expert_parallel(), message.expert_parallel()),
                     .expert_sharding_parallel =
                         OneUnlessGiven(message.has_expert_sharding_parallel(), message.expert_sharding_parallel()),
                     .context_parallel = OneUnlessGiven(message.has_context_parallel(), message.context_parallel()),
                     .pipeline_parallel = OneUnlessGiven(message.has_pipeline_parallel(), message.pipeline_parallel()),
                     .data_parallel = message.data_parallel()};
  if (message.has_data_parallel() && message.data_parallel() < 1) {
    return error::Mismatch(FieldPath(path, "dataParallel"), StrCat(message.data_parallel()), "at least 1");
  }
  question.micro_batch = OneUnlessGiven(message.has_micro_batch(), message.micro_batch());
  question.horizontal_contexts.reset();
  if (message.has_horizontal_contexts()) question.horizontal_contexts = message.horizontal_contexts();
  LayoutRequest& request = question.request;
  ASSIGN_OR_RETURN(request.precision, EnumFromProto<Precision>(message.precision(), FieldPath(path, "precision")));
  request.virtual_stages = OneUnlessGiven(message.has_virtual_stages(), message.virtual_stages());
  request.stages.assign(message.stages().begin(), message.stages().end());
  request.zero_stage = message.has_zero_stage() ? message.zero_stage() : kUsualZeroStage;
  ASSIGN_OR_RETURN(request.recompute, EnumFromProto<Recompute>(message.recompute(), FieldPath(path, "recompute")));
  ASSIGN_OR_RETURN(request.attention,
                   EnumFromProto<AttentionKernel>(message.attention(), FieldPath(path, "attention")));
  ASSIGN_OR_RETURN(request.context_exchange,
                   EnumFromProto<ContextExchange>(message.context_exchange(), FieldPath(path, "contextExchange")));
  request.overlaps_gradients = !message.has_overlap_gradients() || message.overlap_gradients();
  request.overlaps_shared_experts = !message.has_overlap_shared_experts() || message.overlap_shared_experts();
  request.sequence_parallel = !message.has_sequence_parallel() || message.sequence_parallel();
  const double factor = message.capacity_factor();
  if (!std::isfinite(factor) || factor < 0) {
    return error::Mismatch(FieldPath(path, "capacityFactor"), StrCat(factor), "a finite number of at least 0");
  }
  const double imbalance = message.expert_imbalance() == 0 ? 1 : message.expert_imbalance();
  const bool has_experts = request.model.moe_layers() > 0;
  const double most = factor == 0 && has_experts ? question.layout.expert_parallel : 1;
  if (!(imbalance >= 1 && imbalance <= std::max(1.0, most))) {
    return error::Mismatch(FieldPath(path, "expertImbalance"), StrCat(imbalance),
                           "1 to expertParallel, of a model with experts, without capacityFactor");
  }
  // The busiest rank holds up the others, as one with so many slots would.
  request.capacity_factor = factor == 0 ? imbalance : factor;
  request.dropless = factor == 0;
  request.recompute_layers = message.recompute_layers();
  request.recompute_chunk = message.has_recompute_chunk() ? message.recompute_chunk() : 1;
  request.overlaps_tensor = message.overlap_tensor_parallel();
  request.recompute_modules = {};
  for (int i = 0; i < message.recompute_modules_size(); ++i) {
    ASSIGN_OR_RETURN(const auto module,
                     EnumFromProto<RecomputeModule>(message.recompute_modules(i), FieldPath(path, "recomputeModules")));
    request.recompute_modules.Add(module);
  }
  // FP32 or BF16.
  ASSIGN_OR_RETURN(const auto gradients,
                   EnumFromProto<Gradients>(message.gradient_precision(), FieldPath(path, "gradientPrecision")));
  request.gradient_bytes = gradients == Gradients::kFp32 ? 4 : 2;
  ASSIGN_OR_RETURN(request.dispatcher, EnumFromProto<Dispatcher>(message.dispatcher(), FieldPath(path, "dispatcher")));
  ASSIGN_OR_RETURN(request.transport, EnumFromProto<Transport>(message.transport(), FieldPath(path, "transport")));
  request.overlaps_experts = message.overlap_expert_parallel();
  request.delays_weight_gradients = message.delay_weight_gradients();
  // A framework that hides exchanges behind another micro-batch has no room beside them.
  if (request.overlaps_experts && !message.has_overlap_shared_experts()) request.overlaps_shared_experts = false;
  request.next_tokens = message.mtp_layers();
  question.schedule.reset(), question.chunks.reset(), question.partition_degree.reset();
  question.lancet = message.schedule() == v1::Schedule::LANCET;
  if (question.lancet) {
    if (!message.has_plan()) return OkStatus();
    const v1::Schedule::Family family = message.plan().schedule();
    const std::string of = family == v1::Schedule::UNSPECIFIED ? "a layer" : EnumNameOf(family);
    return error::Mismatch(FieldPath(path, "plan"), "a plan of " + of,
                           "none beside schedule LANCET, which plans the graph of a stage itself");
  }
  const bool chosen = message.schedule() != v1::Schedule::UNSPECIFIED;
  const v1::Schedule::Family of_plan = message.plan().schedule();
  if (message.has_plan() && (!chosen || (of_plan != v1::Schedule::UNSPECIFIED && of_plan != message.schedule()))) {
    return error::Mismatch(FieldPath(path, "plan"),
                           chosen ? StrCat("a plan of ", EnumNameOf(of_plan)) : "one without schedule beside it",
                           "one of the family that schedule names");
  }
  if (!chosen) return OkStatus();
  if (message.schedule() == v1::Schedule::UNSCHEDULED) {
    return error::Mismatch(FieldPath(path, "schedule"), "UNSCHEDULED, the given order of a training graph",
                           "LANCET or the schedule of a layer, such as BASELINE");
  }
  ASSIGN_OR_RETURN(question.schedule, EnumFromProto<Family>(message.schedule(), FieldPath(path, "schedule")));
  if (message.plan().chunks() != 0) question.chunks = message.plan().chunks();
  if (message.plan().partition_degree() != 0) question.partition_degree = message.plan().partition_degree();
  return OkStatus();
}

Status ReadSettings(const v1::StepLayout& message, std::string_view path, LayoutRequest& request) {
  const std::pair<bool, const char*> chosen[] = {{message.has_tensor_parallel(), "tensorParallel"},
                                                 {message.has_expert_parallel(), "expertParallel"},
                                                 {message.has_expert_sharding_parallel(), "expertShardingParallel"},
                                                 {message.has_context_parallel(), "contextParallel"},
                                                 {message.has_pipeline_parallel(), "pipelineParallel"},
                                                 {message.has_data_parallel(), "dataParallel"},
                                                 {message.has_micro_batch(), "microBatch"},
                                                 {message.has_horizontal_contexts(), "horizontalContexts"},
                                                 {message.schedule() != v1::Schedule::UNSPECIFIED, "schedule"},
                                                 {message.has_plan(), "plan"}};
  for (const auto& [given, field] : chosen) {
    if (given) return InvalidInput(StrCat(path, ": found ", field, ", which the ranking chooses; expected none"));
  }
  if (message.expert_imbalance() != 0) {
    return InvalidInput(
        StrCat(path, ": found expertImbalance, which is of the ranks of one layout: give it to a step"));
  }
  StepQuestion question;
  question.request = request;
  RETURN_IF_ERROR(ReadStepLayout(message, path, question));
  request = std::move(question.request);
  return OkStatus();
}

StatusOr<v1::StepLayout> StepLayoutFromJson(std::string_view text, std::string_view source_name) {
  const auto [is_row, says_contexts] = RowTextOf(text);
  if (!is_row) return FromJson<v1::StepLayout>(text, source_name);
  ASSIGN_OR_RETURN(const v1::RankedLayout row, FromJson<v1::RankedLayout>(text, source_name));
  return FromRow(row, says_contexts);
}

namespace {

// Rows of a ranking and layouts of a step have the same fields for it.
template <typename Message>
void SetRequest(const LayoutRequest& request, Message& message) {
  message.set_zero_stage(request.zero_stage);
  message.set_recompute(EnumToProto<v1::Recompute::Kind>(request.recompute));
  message.set_sequence_parallel(request.sequence_parallel);
  message.set_attention(EnumToProto<v1::AttentionKernel::Kind>(request.attention));
  message.set_capacity_factor(request.capacity_factor);
  message.set_context_exchange(EnumToProto<v1::ContextExchange::Kind>(request.context_exchange));
  message.set_overlap_gradients(request.overlaps_gradients);
  message.set_overlap_shared_experts(request.overlaps_shared_experts);
  message.set_virtual_stages(request.virtual_stages);
  message.mutable_stages()->Assign(request.stages.begin(), request.stages.end());
  message.set_precision(EnumToProto<v1::Precision::Kind>(request.precision));
  message.set_recompute_layers(request.recompute_layers);
  message.set_recompute_chunk(request.recompute_chunk);
  message.set_overlap_tensor_parallel(request.overlaps_tensor);
  for (int i = 0; i < kRecomputeModules; ++i) {
    const auto module = static_cast<RecomputeModule>(i);
    if (request.recompute_modules.Has(module)) {
      message.add_recompute_modules(EnumToProto<v1::RecomputeModule::Kind>(module));
    }
  }
  message.set_gradient_precision(request.gradient_bytes == 4 ? v1::GradientPrecision::FP32
                                                             : v1::GradientPrecision::BF16);
  message.set_dispatcher(EnumToProto<v1::Dispatcher::Kind>(request.dispatcher));
  message.set_transport(EnumToProto<v1::Transport::Kind>(request.transport));
  message.set_overlap_expert_parallel(request.overlaps_experts);
  message.set_delay_weight_gradients(request.delays_weight_gradients);
  message.set_mtp_layers(request.next_tokens);
}

}  // namespace

v1::StepLayout StepLayoutOf(const StepQuestion& question) {
  const Layout& degrees = question.layout;
  v1::StepLayout layout;
  SetRequest(question.request, layout);
  layout.set_tensor_parallel(degrees.tensor_parallel);
  layout.set_expert_parallel(degrees.expert_parallel);
  layout.set_expert_sharding_parallel(degrees.expert_sharding_parallel);
  layout.set_context_parallel(degrees.context_parallel);
  layout.set_pipeline_parallel(degrees.pipeline_parallel);
  if (degrees.data_parallel > 0) layout.set_data_parallel(degrees.data_parallel);
  layout.set_micro_batch(question.micro_batch);
  if (question.horizontal_contexts) layout.set_horizontal_contexts(*question.horizontal_contexts);
  if (layout.capacity_factor() == 1) layout.set_capacity_factor(0);
  if (question.lancet) layout.set_schedule(v1::Schedule::LANCET);
  if (!question.schedule) return layout;
  layout.set_schedule(EnumToProto<v1::Schedule::Family>(*question.schedule));
  if (!question.chunks && !question.partition_degree) return layout;
  layout.mutable_plan()->set_schedule(layout.schedule());
  layout.mutable_plan()->set_chunks(question.chunks.value_or(0));
  layout.mutable_plan()->set_partition_degree(question.partition_degree.value_or(0));
  return layout;
}

v1::Schedule::Family MoeScheduleOf(const RankedLayout& ranked) {
  return ranked.lancet ? v1::Schedule::LANCET : EnumToProto<v1::Schedule::Family>(ranked.moe.family);
}

void SetSettings(const LayoutRequest& request, const RankedLayout& ranked, v1::RankedLayout& message) {
  SetRequest(request, message);
  if (ranked.moe_layer_s <= 0) return;
  if (ranked.lancet) return message.set_schedule(v1::Schedule::LANCET);
  message.set_schedule(EnumToProto<v1::Schedule::Family>(ranked.moe.family));
  message.mutable_plan()->set_schedule(message.schedule());
  message.mutable_plan()->set_chunks(ranked.moe.chunks);
  message.mutable_plan()->set_partition_degree(ranked.moe.partition_degree);
}

void SetGain(const StepRatio& ratio, v1::StepResult& message) {
  message.set_gain(ratio.ratio);
  message.set_gain_low(ratio.low);
  message.set_gain_high(ratio.high);
  message.set_against_step_time_s(ratio.other.layout.step_time_s);
  if (ratio.other.missing_bytes > 0) {
    message.add_warnings(
        StrCat("against: it does not fit: a GPU lacks ", BriefNumber(ratio.other.missing_bytes), " bytes"));
  }
  const std::set<std::string> known(message.warnings().begin(), message.warnings().end());
  for (const std::string& warning : ratio.other.warnings) {
    if (!known.contains(warning)) message.add_warnings(StrCat("against: ", warning));
  }
}

v1::StepResult ToProto(const StepAnswer& answer, int gpus) {
  const RankedLayout& layout = answer.layout;
  v1::StepResult message;
  message.set_step_time_s(layout.step_time_s);
  message.set_low_s(answer.low_s);
  message.set_high_s(answer.high_s);
  message.set_tokens_per_s(layout.tokens_per_s);
  message.set_tokens_per_s_per_gpu(layout.tokens_per_s / gpus);
  message.set_mfu(layout.mfu);
  message.set_memory_bytes(layout.memory.total_bytes());
  *message.mutable_memory() = StepMemoryOf(layout.memory);
  for (const StepPartTime& part : answer.parts) {
    v1::StepPart& one = *message.add_parts();
    one.set_part(part.part);
    one.set_forward_s(part.forward_s);
    one.set_backward_s(part.backward_s);
    one.set_exposed_s(part.exposed_s);
  }
  for (const CostKey& key : layout.priced_from) message.add_costs(Describe(key));
  for (const std::string& warning : answer.warnings) message.add_warnings(warning);
  message.set_extrapolated(layout.extrapolated);
  message.set_missing_bytes(answer.missing_bytes);
  if (layout.moe_layer_s > 0) message.set_moe_schedule(MoeScheduleOf(layout));
  if (answer.lancet) {
    v1::StepLancet& lancet = *message.mutable_lancet();
    lancet.set_layer_schedule(EnumToProto<v1::Schedule::Family>(layout.moe.family));
    lancet.set_ranges_s(answer.lancet->ranges_s);
    lancet.set_weight_gradients_s(answer.lancet->weight_gradients_s);
    lancet.set_without_step_time_s(answer.lancet->without_step_s);
  }
  message.set_moe_pieces(layout.moe.chunks * layout.moe.partition_degree);
  return message;
}

}  // namespace moeplan
