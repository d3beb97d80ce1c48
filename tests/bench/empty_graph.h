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

class EmptyKernels final : public executor::Kernels {
 public:
  Status CheckCodec(Codec) const override { return OkStatus(); }
  void AddValues(const float*, int64_t, float*, executor::Stream& stream) override { Queue(stream); }
  void Gate(const executor::GateArgs&, executor::Stream& stream) override { Queue(stream); }
  void AssignSlots(const executor::AssignSlotsArgs&, executor::Stream& stream) override { Queue(stream); }
  void Dispatch(const executor::TokenRows&, const executor::Routing&, const executor::SlotRows&,
                executor::Stream& stream) override {
    Queue(stream);
  }
  void Encode(Codec, const executor::SlotRows&, std::byte*, executor::Stream& stream) override { Queue(stream); }
  void Decode(Codec, const std::byte*, const executor::SlotRows&, executor::Stream& stream) override { Queue(stream); }
  void CopyCells(const executor::SlotRows&, const executor::SlotRows&, std::span<const executor::CellPair>,
                 executor::Stream& stream) override {
    Queue(stream);
  }
  void Expert(const executor::SlotRows&, const executor::SlotRows&, std::byte*,
              std::span<const std::vector<executor::CellPair>>, executor::Stream& stream) override {
    Queue(stream);
  }
  void SharedExpert(const executor::TokenRows&, const executor::TokenRows&, std::byte*,
                    executor::Stream& stream) override {
    Queue(stream);
  }
  void SumCells(const executor::SlotRows&, const executor::SlotRows&, std::span<const executor::CellPair>,
                executor::Stream& stream) override {
    Queue(stream);
  }
  void Combine(const executor::CombineArgs&, executor::Stream& stream) override { Queue(stream); }
  void CombineGradient(const executor::TokenRows&, const executor::Routing&, const executor::SlotRows&,
                       executor::Stream& stream) override {
    Queue(stream);
  }
  void RoutingGradient(const executor::TokenRows&, const executor::SlotRows&, const executor::Routing&, float*,
                       executor::Stream& stream) override {
    Queue(stream);
  }
  void ExpertInputGradient(const executor::ExpertInputGradientArgs&, executor::Stream& stream) override {
    Queue(stream);
  }
  void SharedInputGradient(const executor::SharedInputGradientArgs&, executor::Stream& stream) override {
    Queue(stream);
  }
  void ExpertWeightGradient(const executor::ExpertWeightGradientArgs&, executor::Stream& stream) override {
    Queue(stream);
  }
  void SharedWeightGradient(const executor::SharedWeightGradientArgs&, executor::Stream& stream) override {
    Queue(stream);
  }
  void DispatchGradient(const executor::SlotRows&, const executor::Routing&, const executor::TokenRows&,
                        executor::Stream& stream) override {
    Queue(stream);
  }
  void GateGradient(const executor::GateGradientArgs&, executor::Stream& stream) override { Queue(stream); }
  void SplitByNode(const executor::SplitByNodeArgs&, executor::Stream& stream) override { Queue(stream); }
  void RelayRouting(const executor::RelayRoutingArgs&, executor::Stream& stream) override { Queue(stream); }
  void SumOverNodes(const executor::SlotRows&, const executor::Routing&, const executor::TokenRows&, float*,
                    executor::Stream& stream) override {
    Queue(stream);
  }

 private:
  static void Queue(executor::Stream& stream) { executor::HostStream::Of(stream).Enqueue(OkStatus); }
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
    auto groups = executor::GroupCommunicators::Make(*world_, {});
    MOEPLAN_CHECK(groups.ok());
    groups_ = *std::move(groups);
    auto runner = executor::GraphRunner::Prepare(
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
  const std::unique_ptr<executor::HostDevice> device_ = executor::MakeHostDevice();
  const std::unique_ptr<executor::Communicator> world_ =
      executor::MakeMeshCommunicator(std::move(executor::MakeInProcessMeshes(1)[0]), 20);
  executor::RankStreams streams_;
  executor::GroupCommunicators groups_;
  EmptyKernels kernels_;
  std::unique_ptr<executor::GraphRunner> runner_;
};

}  // namespace moeplan::bench
