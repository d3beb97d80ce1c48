// Builds a TaskGraph step by step: each step adds a task, sizes it, puts it on its stream and derives what it depends
// on from the buffers it reads.
//
// A collective over a group of one rank adds nothing and returns its input. Buffers are written once; a reader depends
// on the writers of the buffer, of the buffer it is a view of, and of its own views.
#pragma once

#include <string>
#include <vector>

#include "models/schedule/task_graph.h"

namespace moeplan {

class GraphBuilder {
 public:
  // `workload` must be resolved against `cluster`.
  GraphBuilder(const Workload& workload, const Cluster& cluster);

  const LayerSizes& sizes() const { return sizes_; }
  int tokens() const { return static_cast<int>(sizes_.tokens); }
  int local_experts() const { return graph_.layer.experts / graph_.layout.expert_parallel; }

  // Slots per expert are cut into `slot_axes` (outermost first) and what is left per cell; see TaskGraph.
  void CutSlots(int capacity, std::vector<Extent> slot_axes);
  int slots_per_cell() const { return graph_.slots_per_cell; }

  // All later tasks belong to this chunk; with `named` their names end in ".<chunk + 1>".
  void SetChunk(int chunk, bool named);

  BufferId Input();
  BufferId TokenBuffer(const std::string& name, std::vector<Extent> cells, int rows);
  // The own slice of `tokens` over the MP group, of `rows` rows; `tokens` itself when MP has one rank.
  BufferId SliceOf(BufferId tokens, int rows);
  // Room for the result of such a slice.
  BufferId SliceBuffer(const std::string& name, int rows);
  // Rows of M elements in {cells} × slots_per_cell.
  BufferId SlotBuffer(const std::string& name, std::vector<Extent> cells);
  BufferId IrregularSlotBuffer(const std::string& name, std::vector<Extent> cells, int max_rows, double expected_rows,
                               BufferId counts);
  BufferId CountBuffer(const std::string& name, std::vector<Extent> cells);
  BufferId View(const std::string& name, BufferId of, std::vector<Extent> cells, int rows, int block);

  // Gates the tokens; the result is the routing. With `counts`, see GateOp.
  BufferId Gate(BufferId tokens, BufferId counts = kNoBuffer);
  void AssignSlots(BufferId all_counts, BufferId routing, BufferId send_counts);
  void Dispatch(BufferId tokens, BufferId routing, BufferId out);
  // `out` describes the result; it is returned, or `in` when the group has one rank.
  BufferId AllToAll(const std::string& name, Group group, BufferId in, BufferId out);
  BufferId AllGather(const std::string& name, Group group, BufferId in, BufferId out);
  BufferId ReduceScatter(const std::string& name, Group group, BufferId in, BufferId out);
  BufferId AllReduce(const std::string& name, Group group, BufferId in, BufferId out);
  void AllToAllAllGather(const std::string& name, BufferId in, BufferId partial, BufferId out);
  void Copy(const std::string& name, StreamKind stream, BufferId in, BufferId out);
  // The first call puts the layer's shared expert, where it has one, ahead of it: its compute then runs while tokens
  // are still on their way, and its sum over MP while the experts compute. Combine adds what it made.
  void Expert(BufferId in, BufferId out);
  // `in` unless there are shards to sum.
  BufferId SumShards(BufferId in, BufferId out);
  void Combine(BufferId slots, BufferId routing, BufferId out);

  StreamKind StreamOf(Group group) const;
  const Buffer& buffer(BufferId id) const { return graph_.buffers[id]; }

  // The finished graph; buffers that no task uses are dropped.
  TaskGraph Finish(BufferId output) &&;

 private:
  BufferId AddBuffer(Buffer buffer);
  BufferId Collect(const std::string& name, Collective collective, Group group, BufferId in, BufferId out,
                   double bytes);
  void AddSharedExpert();
  // Depends on the writers of what it reads and of `after`.
  void AddTask(const std::string& name, TaskKind kind, StreamKind stream, double size, TaskOp op,
               BufferId after = kNoBuffer);
  std::vector<TaskId> WritersOf(BufferId buffer) const;

  TaskGraph graph_;
  LayerSizes sizes_;
  double row_bytes_;
  int chunk_ = 0;
  bool chunk_named_ = false;
  BufferId shared_ = kNoBuffer;               // What the shared expert made of the input.
  std::vector<std::vector<TaskId>> writers_;  // By buffer.
};

}  // namespace moeplan
