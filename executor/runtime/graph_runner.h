// Runs a task graph on one rank's device: the reader of design.md §2 that "does".
//
// Prepare resolves what differs between ranks and allocates every buffer once; it is collective where the graph has
// all-to-alls that are not DIRECT. Enqueue queues all tasks on their streams with the events between them, and returns;
// it reads no clock, blocks no thread and may be called again for the next run. The first call for a phase takes the
// work down (Device::Capture), and later ones only replay it. Where ranks may differ in that (Recording::MayDiffer), it
// also waits for what is queued and for the other ranks, to agree with them. After Device::Synchronize, LastTimeline
// tells when each task started and ended.
//
// Every rank of the stage must enqueue the same graphs in the same order. One thread drives a runner.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/all_to_all/phased_all_to_all.h"
#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/kernels.h"
#include "models/schedule/task_graph.h"
#include "models/timeline/task_timing.h"

namespace moeplan::executor {

// The streams and groups of a rank; shared by all its runners, which run one after the other.
class RankStreams {
 public:
  explicit RankStreams(Device& device);
  Stream& operator[](StreamKind kind) { return *streams_[static_cast<size_t>(kind)]; }
  // What PIPE sends inside nodes beside the inter-node stream. Not the intra-node stream, where it would wait for
  // gathers that the graph puts beside the all-to-all. Made on first use.
  Stream& inside_nodes();

  // The all-to-alls of a stream begin on this one, before what their own does ahead of them has ended. It is made on
  // first use.
  Stream& ahead(StreamKind kind);

  // Has no work of its own: what it is held for, the host can await. Made on first use.
  Stream& awaited();

  // Where the data-parallel traffic of a stream runs: one of priority kData or, where the device has none, the stream
  // itself. Made on first use.
  Stream& ForData(StreamKind kind);

  // Holds the compute stream until all others have come this far, or them until it has.
  void Join();
  void Fork();

 private:
  Device& device_;
  std::array<std::unique_ptr<Stream>, kStreamKinds> streams_;
  // One for each stream: marks of one event on several streams may pass in any order.
  std::array<std::unique_ptr<Event>, kStreamKinds> reached_;
  std::unique_ptr<Stream> inside_nodes_, awaited_;
  std::array<std::unique_ptr<Stream>, kStreamKinds> ahead_, for_data_;
};

class GroupCommunicators {
 public:
  // Splits `world` (the ranks of the stage), which must outlive this, into the groups of `layout`, each collective of
  // at most `ctas` CTAs; 0: the library's own choice. Collective; blocks. kInvalidInput where `world` cannot limit
  // them.
  static StatusOr<GroupCommunicators> Make(Communicator& world, const Layout& layout, int ctas = 0);
  // kDenseReplicas only once JoinReplicas has been called.
  Communicator& operator[](Group group) { return *communicators_[static_cast<size_t>(group)]; }
  // The ranks of the stage.
  Communicator& stage() { return *world_; }
  int ctas() const { return ctas_; }
  // Splits off kDenseReplicas, which most layers have no use for. `layout`: that of Make, resolved. The first call is
  // collective and blocks.
  Status JoinReplicas(const Layout& layout);
  // Of a group that has the shape and where the own rank is `rank`. The first call splits: collective, blocks.
  StatusOr<AllToAllTeams*> TeamsOf(Group group, const GroupShape& shape, int rank);

 private:
  StatusOr<std::unique_ptr<Communicator>> Join(Group group, const Layout& layout);

  Communicator* world_ = nullptr;
  int ctas_ = 0;
  std::array<std::unique_ptr<Communicator>, kGroupCount> communicators_;
  std::array<std::unique_ptr<AllToAllTeams>, std::size(kGroups)> teams_;  // Null until asked for.
};

// What a runner borrows; everything must outlive it.
struct RankContext {
  int rank = 0;  // Within the stage.
  Device& device;
  RankStreams& streams;
  GroupCommunicators& groups;
  Kernels& kernels;
};

// A backward pass in two halves, which a job may run apart: the gradients of the layer's input and gate, and then those
// of the expert weights, which nothing else waits for.
enum class BackwardHalf { kInputGradients, kWeightGradients };

// The source batch that a graph's tokens are a part of, where they are not all of it.
struct WholeBatch {
  int tokens = 0;
  int slots = 0;  // Those of each expert.

  friend bool operator==(const WholeBatch&, const WholeBatch&) = default;
};

// Whether all ranks of the stage replay a phase of a graph. They agree on it when one of them runs it for the first
// time, so that has to be the same run on all. Runners of one graph that a rank makes as it needs them share it.
struct ReplayAgreement {
  std::array<std::optional<bool>, static_cast<size_t>(Phase::kTraining) + 1> phases;
  std::optional<bool> input_gradients;  // For BackwardHalf::kInputGradients.
};

class GraphRunner {
 public:
  // Requires groups of the graph's limit on CTAs. With `whole` the graph is that of a part of such a source batch, and
  // has slots for whatever its tokens may take, at most min(whole.slots, its tokens) of each expert; its router's
  // losses are those of the source batch.
  static StatusOr<std::unique_ptr<GraphRunner>> Prepare(const TaskGraph& graph, const RankContext& context,
                                                        const std::optional<WholeBatch>& whole = std::nullopt,
                                                        std::shared_ptr<ReplayAgreement> agreement = nullptr);
  virtual ~GraphRunner() = default;

  // Queues the tasks of a phase. The backward ones need what the last forward ones left.
  virtual void Enqueue(Phase phase) = 0;
  // The same of half a backward pass: input gradients first, on every rank in the same order. Weight gradients need
  // what both passes have left, are computed on the compute stream, and exchange nothing.
  virtual void Enqueue(BackwardHalf half) = 0;
  // Holds `stream` until the experts have computed the gradients of their inputs in the backward pass that was queued
  // last. On devices that keep no work (Device::Capture): others record these points for themselves.
  virtual void HoldForExperts(Stream& stream) = 0;
  // Likewise until the last forward pass of a part has written CarriedMemory::now.
  virtual void HoldForCounts(Stream& stream) = 0;
  // Backward work is taken down once for each place where its gradients lie (Kernels::UseDeviceMemory), of which
  // `place` is the one from now on.
  static constexpr int kGradientPlaces = 4;
  virtual void UseGradientPlace(int place) = 0;
  // Takes the work of a phase down anew when it is queued next with gradients at that place: kernels use other memory.
  virtual void RecordAnew(Phase phase, int place) = 0;

  // Of the tasks of a phase, each as it was last run, in graph order. After Device::Synchronize; seconds on the
  // device's clock.
  virtual Timeline LastTimeline(Phase phase) const = 0;

  // B·L rows of M elements: write before Enqueue, read after Synchronize (device memory).
  virtual std::byte* input() = 0;
  virtual const std::byte* output() const = 0;
  // The same for graphs with backward tasks, and the gate's gradient: GateGradientValues. It is that of the own
  // source batch, whole on every rank of the MP group. Those of the experts: see Kernels.
  virtual std::byte* output_gradient() = 0;
  virtual const std::byte* input_gradient() const = 0;
  virtual const float* gate_gradient() const = 0;
  // What each slice of dense gradients sums, in launch order: write before Enqueue, read after Synchronize.
  virtual std::vector<std::span<std::byte>> dense_gradients() = 0;
  virtual Routing routing() const = 0;
  // The rows of `routing` that describe tokens this rank answers for: [first, first + count), and the first of those
  // tokens within the source batch.
  struct RoutedRows {
    int first_row = 0, count = 0, first_token = 0;
  };
  virtual RoutedRows routed_rows() const = 0;
  // Of those rows, in the last run. Blocks until that has passed; the device's error where it has one.
  virtual StatusOr<RouterStatistics> router_statistics() = 0;

  // For a part: device memory that carries counts from one part to the next, all int32. Blocks are the source batches
  // that this rank gates, one but in BASELINE.
  struct CarriedMemory {
    int blocks = 1, own_block = 0;
    std::byte* earlier = nullptr;      // [blocks][E], and the place of the first token: write before a forward pass.
    const std::byte* now = nullptr;    // [blocks][E]: read after it.
    std::byte* batch_pairs = nullptr;  // [E]: the pairs of the whole own source batch: write before a backward pass.
  };
  virtual CarriedMemory carried() = 0;
};

}  // namespace moeplan::executor
