// Runs a task graph on one rank's device: the reader of design.md §2 that "does".
//
// Prepare resolves what differs between ranks and allocates every buffer once. Enqueue queues all tasks on their
// streams with the events between them, and returns; it reads no clock, blocks no thread and may be called again for
// the next run. After Device::Synchronize, LastTimeline tells when each task started and ended.
//
// Every rank of the stage must enqueue the same graphs in the same order. One thread drives a runner.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/kernels.h"
#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"

namespace moeplan {

// The streams and groups of a rank; shared by all its runners, which run one after the other.
class RankStreams {
 public:
  explicit RankStreams(Device& device);
  Stream& operator[](StreamKind kind) { return *streams_[static_cast<size_t>(kind)]; }

 private:
  std::array<std::unique_ptr<Stream>, kStreamKinds> streams_;
};

class GroupCommunicators {
 public:
  // Splits `world` (the ranks of the stage) into the groups of `layout`. Collective; blocks.
  static StatusOr<GroupCommunicators> Make(Communicator& world, const Layout& layout);
  Communicator& operator[](Group group) { return *communicators_[static_cast<size_t>(group)]; }
  void Abort(const Status& why);

 private:
  std::array<std::unique_ptr<Communicator>, std::size(kGroups)> communicators_;
};

// What a runner borrows; everything must outlive it.
struct RankContext {
  int rank = 0;  // Within the stage.
  Device& device;
  RankStreams& streams;
  GroupCommunicators& groups;
  Kernels& kernels;
};

class GraphRunner {
 public:
  static StatusOr<std::unique_ptr<GraphRunner>> Prepare(const TaskGraph& graph, const RankContext& context);
  virtual ~GraphRunner() = default;

  virtual void Enqueue() = 0;

  // After Device::Synchronize. Seconds on the device's clock, in graph order.
  virtual Timeline LastTimeline() const = 0;
  // From the start of the first task to the end of the last.
  virtual double LastTimeS() const = 0;

  // B·L rows of M elements: write before Enqueue, read after Synchronize (device memory).
  virtual std::byte* input() = 0;
  virtual const std::byte* output() const = 0;
  virtual Routing routing() const = 0;
  // The rows of `routing` that describe tokens this rank answers for: [first, first + count), and the first of those
  // tokens within the source batch.
  struct RoutedRows {
    int first_row = 0, count = 0, first_token = 0;
  };
  virtual RoutedRows routed_rows() const = 0;
  // Of those rows, in the last run; after Device::Synchronize.
  virtual RouterStatistics router_statistics() const = 0;
};

}  // namespace moeplan
