// GRAPH.json, and the check of what it says.
#include "models/training/training_graph.h"
#include "proto/convert/training_graph.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::TrainingGraph>(TextOf(data, size), [](const v1::TrainingGraph& message) -> StatusOr<TrainingGraph> {
    ASSIGN_OR_RETURN(TrainingGraph graph, TrainingGraphFromProto(message));
    RETURN_IF_ERROR(ValidateTrainingGraph(graph));
    // Producers stand before who reads them.
    const auto producers = ProducersOf(graph);
    for (size_t i = 0; i < producers.size(); ++i) {
      for (const int producer : producers[i]) MOEPLAN_CHECK(producer >= 0 && static_cast<size_t>(producer) < i);
    }
    return graph;
  });
  return 0;
}
