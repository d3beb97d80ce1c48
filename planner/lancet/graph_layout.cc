#include "planner/lancet/graph_layout.h"

#include <string>

#include "models/text.h"

namespace moeplan::planner {
namespace {

Status BadLayout(const char* field, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat("layout.", field, ": found ", found, ", expected ", expected));
}

Status CheckFills(const Layout& layout, int gpus) {
  const long long sharing = 1LL * layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel;
  if (layout.data_parallel == 0 || sharing < 1 || gpus % sharing != 0) return OkStatus();
  if (layout.data_parallel == gpus / sharing) return OkStatus();
  return BadLayout("dataParallel", StrCat(layout.data_parallel),
                   StrCat(gpus / sharing, ", which fills ", gpus, " GPUs"));
}

}  // namespace

Status CheckGraphHas(const LayoutRequest& request) {
  if (request.overlaps_experts) return BadLayout("overlapExpertParallel", "true", "false: a graph is one micro-batch");
  return OkStatus();
}

StatusOr<ModelGraphOptions> GraphOptionsOf(const StepQuestion& question) {
  const LayoutRequest& request = question.request;
  RETURN_IF_ERROR(CheckGraphHas(request));
  RETURN_IF_ERROR(CheckFills(question.layout, request.gpus));
  ModelGraphOptions options;
  options.batch = question.micro_batch;
  options.sequence_length = request.sequence_length;
  options.expert_parallel = question.layout.expert_parallel;
  options.expert_sharding_parallel = question.layout.expert_sharding_parallel;
  options.tensor_parallel = question.layout.tensor_parallel;
  options.context_parallel = question.layout.context_parallel;
  options.pipeline_parallel = question.layout.pipeline_parallel;
  options.virtual_stages = request.virtual_stages;
  options.stages = request.stages;
  options.recompute = request.recompute;
  options.recompute_modules = request.recompute_modules;
  options.recompute_layers = request.recompute_layers;
  options.recompute_chunk = request.recompute_chunk;
  options.attention = request.attention;
  options.next_tokens = request.next_tokens;
  options.horizontal_contexts = question.horizontal_contexts;
  options.context_exchange = request.context_exchange;
  options.dispatcher = request.dispatcher;
  options.transport = request.transport;
  options.precision = request.precision;
  options.overlaps_tensor = request.overlaps_tensor;
  options.sequence_parallel = request.sequence_parallel;
  options.gpus = request.gpus;
  options.capacity_factor = request.capacity_factor;
  options.dropless = DropsNothing(request);
  options.bytes_per_element = request.bytes_per_element;
  options.zero_stage = request.zero_stage;
  options.gradient_bytes = request.gradient_bytes;
  return options;
}

}  // namespace moeplan::planner
