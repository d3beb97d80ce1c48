// Small task graphs for tests, written down task by task instead of built by a schedule.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/schedule/task_graph.h"

namespace moeplan {

// Adds tasks to a graph in launch order; buffers are left out, since pricing and timelines do not read them.
class HandMadeGraph {
 public:
  HandMadeGraph(Layer layer, Layout layout, int gpus_per_node) {
    graph_.layer = std::move(layer);
    graph_.layout = layout;
    graph_.gpus_per_node = gpus_per_node;
  }
  HandMadeGraph() = default;

  void LimitCtas(int ctas) { graph_.communication_ctas = ctas; }

  TaskId Add(TaskKind kind, StreamKind stream, double size, TaskOp op, std::vector<TaskId> after = {}, int chunk = 0) {
    const TaskId id = static_cast<TaskId>(graph_.tasks.size());
    graph_.tasks.push_back({.name = std::string(Name(kind)) + "." + std::to_string(id),
                            .kind = kind,
                            .stream = stream,
                            .chunk = chunk,
                            .size = size,
                            .dependencies = std::move(after),
                            .op = std::move(op)});
    return id;
  }

  // A task whose price the test sets itself.
  TaskId Add(TaskKind kind, StreamKind stream, std::vector<TaskId> after = {}) {
    return Add(kind, stream, 1, ExpertOp{}, std::move(after));
  }

  TaskId AllToAll(Group group, double bytes, std::vector<TaskId> after = {}, int chunk = 0) {
    return Add(TaskKind::kAllToAll, StreamKind::kInterNode, bytes,
               CollectiveOp{.collective = Collective::kAllToAll, .group = group, .in = 0, .out = 0}, std::move(after),
               chunk);
  }
  TaskId AllGather(Group group, double bytes, std::vector<TaskId> after = {}, int chunk = 0) {
    return Add(TaskKind::kAllGather, StreamKind::kIntraNode, bytes,
               CollectiveOp{.collective = Collective::kAllGather, .group = group, .in = 0, .out = 0}, std::move(after),
               chunk);
  }
  TaskId Saa(double bytes, std::vector<TaskId> after = {}) {
    return Add(TaskKind::kAllToAll, StreamKind::kInterNode, bytes,
               CollectiveOp{.collective = Collective::kAllToAllAllGather,
                            .group = Group::kExpertShard,
                            .in = 0,
                            .out = 0,
                            .partial = 0},
               std::move(after));
  }
  TaskId Copy(double bytes, std::vector<TaskId> after = {}, int chunk = 0) {
    return Add(TaskKind::kCopy, StreamKind::kCopy, bytes, CopyOp{0, 0}, std::move(after), chunk);
  }
  TaskId Expert(double flops, std::vector<TaskId> after = {}) {
    return Add(TaskKind::kExpert, StreamKind::kCompute, flops, ExpertOp{0, 0}, std::move(after));
  }
  TaskId Gate(double bytes, std::vector<TaskId> after = {}) {
    return Add(TaskKind::kGate, StreamKind::kCompute, bytes, GateOp{0, 0}, std::move(after));
  }
  TaskId Permute(double bytes, std::vector<TaskId> after = {}) {
    return Add(TaskKind::kPermute, StreamKind::kCompute, bytes, DispatchOp{0, 0, 0}, std::move(after));
  }

  const TaskGraph& graph() const { return graph_; }

 private:
  TaskGraph graph_;
};

}  // namespace moeplan
