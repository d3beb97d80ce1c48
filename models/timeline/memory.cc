#include "models/timeline/memory.h"

namespace moeplan {
namespace {

// Of one expert of `hidden` columns.
double ExpertElements(const Layer& layer, double hidden) {
  const double matrices = layer.expert_matrices * layer.model_dim * hidden;
  const double biases = (layer.expert_matrices - 1) * hidden + layer.model_dim;
  return matrices + (layer.expert_bias ? biases : 0);
}

}  // namespace

double ExpertWeightBytes(const Layer& layer, const Layout& layout) {
  const double local_experts = static_cast<double>(layer.experts) / layout.expert_parallel;
  const double hidden = static_cast<double>(layer.hidden_dim) / layout.expert_sharding_parallel;
  double elements = local_experts * ExpertElements(layer, hidden);
  if (layer.shared_hidden_dim > 0) {
    elements += ExpertElements(layer, static_cast<double>(layer.shared_hidden_dim) / layout.tensor_parallel);
  }
  return elements * layer.bytes_per_element;
}

double MemoryBytes(const TaskGraph& graph) { return BufferBytes(graph) + ExpertWeightBytes(graph.layer, graph.layout); }

}  // namespace moeplan
