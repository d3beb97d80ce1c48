#include "models/memory/graph_memory.h"

#include <variant>

#include "models/memory/activations.h"
#include "models/memory/weights.h"

namespace moeplan {
namespace {

// Of one expert of `hidden` columns.
double ExpertElements(const Layer& layer, double hidden) {
  const double matrices = layer.expert_matrices * layer.model_dim * hidden;
  const double biases = (layer.expert_matrices - 1) * hidden + layer.model_dim;
  return matrices + (layer.expert_bias ? biases : 0);
}

double SharedExpertParameters(const Layer& layer, const Layout& layout) {
  if (layer.shared_hidden_dim == 0) return 0;
  return ExpertElements(layer, static_cast<double>(layer.shared_hidden_dim) / layout.tensor_parallel);
}

// What the experts, the shared one too, keep of a forward pass.
double KeptBytes(const TaskGraph& graph, const Workload& workload) {
  const Layer& layer = graph.layer;
  const int tensor = graph.layout.tensor_parallel;
  const ActivationSaving saving = {.tensor_parallel = tensor,
                                   .sequence_parallel = workload.sequence_parallel,
                                   .recompute = workload.recompute,
                                   .bytes_per_element = layer.bytes_per_element};
  FeedForwardShape shape = {.tokens = SizesOf(layer, graph.layout).tokens,
                            .copies = ExpertCopies(graph),
                            .shards = graph.layout.expert_sharding_parallel,
                            .model_dim = layer.model_dim,
                            .hidden_dim = static_cast<double>(layer.hidden_dim),
                            .matrices = layer.expert_matrices};
  double bytes = FeedForwardActivationBytes(shape, saving);
  if (layer.shared_hidden_dim > 0) {
    shape.copies = 1;
    shape.shards = tensor;
    shape.hidden_dim = layer.shared_hidden_dim;
    bytes += FeedForwardActivationBytes(shape, saving);
  }
  return bytes;
}

}  // namespace

double ExpertParameters(const Layer& layer, const Layout& layout) {
  const double local_experts = static_cast<double>(layer.experts) / layout.expert_parallel;
  const double hidden = static_cast<double>(layer.hidden_dim) / layout.expert_sharding_parallel;
  return local_experts * ExpertElements(layer, hidden);
}

double DenseParameters(const Layer& layer, const Layout& layout) {
  return static_cast<double>(layer.model_dim) * layer.experts + SharedExpertParameters(layer, layout);
}

double ExpertWeightBytes(const Layer& layer, const Layout& layout) {
  return (ExpertParameters(layer, layout) + SharedExpertParameters(layer, layout)) * layer.bytes_per_element;
}

double MemoryBytes(const TaskGraph& graph) { return BufferBytes(graph) + ExpertWeightBytes(graph.layer, graph.layout); }

double MemoryBytes(const TaskGraph& graph, const Workload& workload) {
  if (!workload.zero_stage) return MemoryBytes(graph);
  const Layer& layer = graph.layer;
  const Layout& layout = graph.layout;
  const int bytes_per_element = layer.bytes_per_element;
  // Ranks of a stage that hold the same dense layers, and the same experts.
  const double dense_replicas = static_cast<double>(layout.context_parallel) * layout.data_parallel;
  const double expert_replicas =
      dense_replicas * layout.tensor_parallel / (layout.expert_parallel * layout.expert_sharding_parallel);
  const bool keeps = graph.first_backward == static_cast<TaskId>(graph.tasks.size());
  return BufferBytes(graph) +
         TrainingStateOf(ExpertParameters(layer, layout), expert_replicas, *workload.zero_stage, bytes_per_element)
             .total_bytes() +
         TrainingStateOf(DenseParameters(layer, layout), dense_replicas, *workload.zero_stage, bytes_per_element)
             .total_bytes() +
         (keeps ? KeptBytes(graph, workload) : 0);
}

double ExpertCopies(const TaskGraph& graph) {
  const Layer& layer = graph.layer;
  double flops = 0;
  for (const Task& task : graph.tasks) {
    if (std::holds_alternative<ExpertOp>(task.op)) flops += task.size;
  }
  const double tokens = SizesOf(layer, graph.layout).tokens;
  return flops / ExpertFlops(layer, graph.layout.tensor_parallel, tokens);
}

}  // namespace moeplan
