// Task graphs whose tasks do nothing, run by the host backend as any other: what is left is the runtime itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "executor/host/host_device.h"
#include "executor/host/host_stream.h"
#include "executor/host/mesh_communicator.h"
#include "executor/runtime/graph_runner.h"
#include "models/check.h"

namespace moeplan::bench {

class EmptyKernels final : public Kernels {
 public:
  Status CheckCodec(Codec) const override { return OkStatus(); }
  void Gate(const GateArgs&, Stream& stream) override { Queue(stream); }
  void AssignSlots(const AssignSlotsArgs&, Stream& stream) override { Queue(stream); }
  void Dispatch(const TokenRows&, const Routing&, const SlotRows&, Stream& stream) override { Queue(stream); }
  void Encode(Codec, const SlotRows&, std::byte*, Stream& stream) override { Queue(stream); }
  void Decode(Codec, const std::byte*, const SlotRows&, Stream& stream) override { Queue(stream); }
  void CopyCells(const SlotRows&, const SlotRows&, std::span<const CellPair>, Stream& stream) override {
    Queue(stream);
  }
  void Expert(const SlotRows&, const SlotRows&, std::byte*, std::span<const std::vector<CellPair>>,
              Stream& stream) override {
    Queue(stream);
  }
  void SharedExpert(const TokenRows&, const TokenRows&, std::byte*, Stream& stream) override { Queue(stream); }
  void SumCells(const SlotRows&, const SlotRows&, std::span<const CellPair>, Stream& stream) override { Queue(stream); }
  void Combine(const CombineArgs&, Stream& stream) override { Queue(stream); }
  void CombineGradient(const TokenRows&, const Routing&, const SlotRows&, Stream& stream) override { Queue(stream); }
  void RoutingGradient(const TokenRows&, const SlotRows&, const Routing&, float*, Stream& stream) override {
    Queue(stream);
  }
  void ExpertInputGradient(const ExpertInputGradientArgs&, Stream& stream) override { Queue(stream); }
  void SharedInputGradient(const SharedInputGradientArgs&, Stream& stream) override { Queue(stream); }
  void ExpertWeightGradient(const ExpertWeightGradientArgs&, Stream& stream) override { Queue(stream); }
  void SharedWeightGradient(const SharedWeightGradientArgs&, Stream& stream) override { Queue(stream); }
  void DispatchGradient(const SlotRows&, const Routing&, const TokenRows&, Stream& stream) override { Queue(stream); }
  void GateGradient(const GateGradientArgs&, Stream& stream) override { Queue(stream); }

 private:
  static void Queue(Stream& stream) { HostStream::Of(stream).Enqueue(OkStatus); }
};

enum class Shape {
  kOneStream,  // One task after the other.
  kChain,      // Each task waits for the one before it, on another of four streams.
  kPipeline,   // Chunks pass four streams in order, beside each other.
};

inline TaskGraph MakeEmptyGraph(Shape shape, int tasks) {
  TaskGraph graph;
  graph.layer = {.batch = 1, .sequence_length = 1, .model_dim = 1, .hidden_dim = 1, .experts = 1, .top_k = 1};
  graph.buffers.push_back({.name = "none", .rows_per_cell = 1, .expected_rows_per_cell = 1, .row_bytes = 4});
  for (int id = 0; id < tasks; ++id) {
    Task task{.name = "nothing." + std::to_string(id), .kind = TaskKind::kCopy, .op = CopyOp{0, 0}};
    if (shape != Shape::kOneStream) task.stream = static_cast<StreamKind>(id % kStreamKinds);
    const bool follows = shape == Shape::kChain ? id > 0 : shape == Shape::kPipeline && id % kStreamKinds > 0;
    if (follows) task.dependencies = {id - 1};
    graph.tasks.push_back(std::move(task));
  }
  graph.first_backward = tasks;
  return graph;
}

// A rank alone with a graph.
class EmptyRun {
 public:
  EmptyRun(Shape shape, int tasks) : tasks_(tasks), streams_(*device_) {
    auto groups = GroupCommunicators::Make(*world_, {});
    MOEPLAN_CHECK(groups.ok());
    groups_ = *std::move(groups);
    auto runner = GraphRunner::Prepare(
        MakeEmptyGraph(shape, tasks),
        {.rank = 0, .device = *device_, .streams = streams_, .groups = groups_, .kernels = kernels_});
    MOEPLAN_CHECK(runner.ok());
    runner_ = *std::move(runner);
  }

  void Run() {
    runner_->Enqueue(Phase::kForward);
    MOEPLAN_CHECK(device_->Synchronize().ok());
  }

  // Of each of `runs` runs, from before Enqueue until after Synchronize, smallest first.
  std::vector<double> TaskTimesS(int runs) {
    std::vector<double> times;
    for (int run = 0; run < runs; ++run) {
      const auto start = std::chrono::steady_clock::now();
      Run();
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / tasks_);
    }
    std::ranges::sort(times);
    return times;
  }

 private:
  const int tasks_;
  const std::unique_ptr<HostDevice> device_ = MakeHostDevice();
  const std::unique_ptr<Communicator> world_ = MakeMeshCommunicator(std::move(MakeInProcessMeshes(1)[0]), 20);
  RankStreams streams_;
  GroupCommunicators groups_;
  EmptyKernels kernels_;
  std::unique_ptr<GraphRunner> runner_;
};

}  // namespace moeplan::bench
