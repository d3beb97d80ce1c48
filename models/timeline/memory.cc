#include "models/timeline/memory.h"

namespace moeplan {

double ExpertWeightBytes(const Layer& layer, const Layout& layout) {
  const double local_experts = static_cast<double>(layer.experts) / layout.expert_parallel;
  const double elements =
      static_cast<double>(layer.expert_matrices) * layer.model_dim * layer.hidden_dim / layout.expert_sharding_parallel;
  return local_experts * elements * layer.bytes_per_element;
}

double MemoryBytes(const TaskGraph& graph) { return BufferBytes(graph) + ExpertWeightBytes(graph.layer, graph.layout); }

}  // namespace moeplan
