// Finds instructions of training graphs by their names.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "models/training/training_graph.h"

namespace moeplan::planner {

// The instruction; the test fails where there is none, and goes on with an empty one.
inline const Instruction& Find(const TrainingGraph& graph, const std::string& id) {
  const auto found = std::ranges::find(graph.instructions, id, &Instruction::id);
  EXPECT_NE(found, graph.instructions.end()) << id;
  static const Instruction kNone;
  return found == graph.instructions.end() ? kNone : *found;
}

// Its place in the given order. Requires one.
inline std::ptrdiff_t Place(const TrainingGraph& graph, const std::string& id) {
  return &Find(graph, id) - graph.instructions.data();
}

}  // namespace moeplan::planner
