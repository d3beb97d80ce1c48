// Options of training graphs whose ranks share layers, sequences, experts or weights, the graphs of the small model
// (small_layouts.h) under them, and which instructions and how much time they have of a kind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "planner/lancet/model_graph.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {

// 8 GPUs on 2 nodes: TP 2, CP 2, DP 2, EP 4. Micro-batches of 8 samples of 64 tokens: 256 on a tensor-parallel group.
inline const ModelGraphOptions kShared = {.batch = 8,
                                          .sequence_length = 64,
                                          .expert_parallel = 4,
                                          .ranks_per_node = 4,
                                          .tensor_parallel = 2,
                                          .context_parallel = 2,
                                          .gpus = 8,
                                          .gpus_per_node = 4};
inline constexpr double kTokens = 256, kRowsBytes = kTokens * 32 * 2;

inline ModelGraphOptions WithWholeRows() {
  ModelGraphOptions options = kShared;
  options.sequence_parallel = false;
  return options;
}
inline ModelGraphOptions WithSharedExperts() {
  ModelGraphOptions options = WithWholeRows();
  options.expert_parallel = options.ranks_per_node = 2;
  options.expert_sharding_parallel = 2;
  return options;
}
// Each tensor-parallel group of a stage has two samples of 64 tokens.
inline ModelGraphOptions InStages(int pipeline) {
  const int experts = pipeline == 2 ? 4 : 2;
  return {.batch = 2,
          .sequence_length = 64,
          .expert_parallel = experts,
          .ranks_per_node = experts,
          .pipeline_parallel = pipeline,
          .gpus = 8,
          .gpus_per_node = 4};
}
inline ModelGraphOptions WithCutWeights() {
  return {.batch = 2,
          .sequence_length = 64,
          .expert_parallel = 4,
          .ranks_per_node = 4,
          .gpus = 8,
          .gpus_per_node = 4,
          .zero_stage = 3};
}

inline TrainingGraph GraphOf(const ModelGraphOptions& options, const ModelConfig& model = SmallModel()) {
  PriceNotes notes;
  const auto graph = TrainingGraphOf(model, options, ProportionalProfile(), notes);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *graph : TrainingGraph();
}

inline bool Has(const TrainingGraph& graph, const std::string& id) {
  return std::ranges::find(graph.instructions, id, &Instruction::id) != graph.instructions.end();
}

using Kind = std::function<bool(const Instruction&)>;

inline double SumS(const TrainingGraph& graph, Pass pass, const Kind& counts) {
  double sum_s = 0;
  for (const Instruction& one : graph.instructions) {
    if (one.phase == pass && counts(one)) sum_s += *one.time_s;
  }
  return sum_s;
}
inline long Count(const TrainingGraph& graph, InstructionOp op, const Kind& counts) {
  return std::ranges::count_if(graph.instructions, [&](const Instruction& one) { return one.op == op && counts(one); });
}

inline bool OverTensor(const Instruction& one) {
  return CollectiveOf(one.op) && one.group_size == 2 && one.ranks_per_node == 2 &&
         one.id.find("contexts") == std::string::npos && StreamOf(one) == StreamKind::kIntraNode;
}
inline bool OfContexts(const Instruction& one) { return one.id.find("contexts") != std::string::npos; }
inline bool IsSend(const Instruction& one) { return one.op == InstructionOp::kSend; }
inline bool OfReplicas(const Instruction& one) { return StreamOf(one) == StreamKind::kCopy && !IsSend(one); }

inline void ExpectCollective(const Instruction& one, InstructionOp op, Pass phase, double bytes, GroupShape group) {
  EXPECT_EQ(Name(one.op), Name(op)) << one.id;
  EXPECT_EQ(one.phase, phase) << one.id;
  EXPECT_EQ(one.bytes, bytes) << one.id;
  EXPECT_EQ(one.group_size, group.size) << one.id;
  EXPECT_EQ(one.ranks_per_node, group.ranks_per_node) << one.id;
}

}  // namespace moeplan::planner
