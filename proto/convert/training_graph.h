// Training graphs (GRAPH.json) to and from messages.
//
// Absent fields get the contract's defaults; an explicit 0 for maxParts stays one, so that ValidateTrainingGraph
// refuses it. `path` is where the message stands in its file and begins every error. Pure.
#pragma once

#include <string_view>

#include "models/status.h"
#include "models/training/training_graph.h"
#include "moeplan/v1/training_graph.pb.h"

namespace moeplan {

// Enums are checked here, all else by ValidateTrainingGraph.
StatusOr<TrainingGraph> TrainingGraphFromProto(const v1::TrainingGraph& message, std::string_view path = {});

v1::TrainingGraph ToProto(const TrainingGraph& graph);

}  // namespace moeplan
