#include "proto/convert/layouts.h"

#include "models/cost/operation.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/convert/workload.h"

namespace moeplan {
namespace {

v1::RankMemory ToProto(const RankMemory& memory) {
  v1::RankMemory message;
  message.set_state_bytes(memory.state_bytes());
  message.set_kept_bytes(memory.kept_bytes);
  message.set_running_bytes(memory.running_bytes);
  message.set_logit_bytes(memory.logit_bytes);
  message.set_other_bytes(memory.other_bytes);
  return message;
}

v1::RankedLayout ToProto(const RankedLayout& ranked, const LayoutRequest& request) {
  v1::RankedLayout message;
  *message.mutable_layout() = moeplan::ToProto(ranked.layout);
  message.set_step_time_s(ranked.step_time_s);
  message.set_tokens_per_s(ranked.tokens_per_s);
  message.set_mfu(ranked.mfu);
  message.set_memory_bytes(ranked.memory.total_bytes());
  message.set_network_scale(ranked.network_scale);
  message.set_micro_batch(ranked.micro_batch);
  message.set_horizontal_contexts(ranked.horizontal_contexts);
  message.set_pipeline_bubble(ranked.pipeline_bubble);
  message.set_gradient_s(ranked.gradient_s);
  message.set_moe_layer_s(ranked.moe_layer_s);
  if (ranked.moe_layer_s > 0) message.set_moe_schedule(MoeScheduleOf(ranked));
  message.set_moe_pieces(ranked.moe.chunks * ranked.moe.partition_degree);
  message.set_extrapolated(ranked.extrapolated);
  *message.mutable_memory() = ToProto(ranked.memory);
  for (const CostKey& key : ranked.priced_from) message.add_costs(Describe(key));
  SetSettings(request, ranked, message);
  return message;
}

}  // namespace

v1::LayoutResult ToProto(const LayoutAnswer& answer, const LayoutRequest& request) {
  v1::LayoutResult message;
  for (const RankedLayout& ranked : answer.layouts) *message.add_layouts() = ToProto(ranked, request);
  message.set_enumerated(answer.enumerated);
  message.set_fitting(answer.fitting);
  message.set_priced(answer.priced);
  message.set_most_pieces(answer.most_pieces);
  message.set_missing_bytes(answer.least_missing_bytes);
  for (const std::string& warning : answer.warnings) message.add_warnings(warning);
  return message;
}

}  // namespace moeplan
