// What all layers of a rank share: the backend they run on (device, network, kernels), its streams, and the
// communicators of each layout's stage and groups, made once.
//
// Making communicators is collective: every rank of the job asks for the same layouts in the same order. One thread.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/kernels.h"
#include "executor/runtime/graph_runner.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

// Kernels of a layer on this backend, such as MakeHostKernels, whose contract they have. kUnimplemented for a layer
// that the backend has no kernels for.
using KernelsFactory = std::function<StatusOr<std::unique_ptr<Kernels>>(
    const Layer& layer, const LayerWeightsView& weights, const LayerGradientsView& gradients)>;

// The same over memory of the device that holds the weights of a shard.
using DeviceKernelsFactory = std::function<StatusOr<std::unique_ptr<Kernels>>(
    const Layer& layer, const LayerShard& shard, const DeviceWeights& weights)>;

// Which calls of layers may be under way at once: those of a lane run one after the other, on streams and communicators
// of the lane, beside those of other lanes. Calls in line are done, or handed over to the job's stream, when they
// return. Calls of the other lanes return once their work is queued, and the job asks for its end when it needs it
// (RankRuntime::Finish): what two micro-batches need whose exchanges run beside each other's compute.
enum class Lane { kInLine, kFirst, kSecond };
inline constexpr int kLanes = 3;

class RankRuntime {
 public:
  // `world`: the ranks of the job. Both are borrowed, must outlive the runtime, and serve nobody else meanwhile.
  // `make_device_kernels` is empty where a job's weights are always the host's.
  RankRuntime(Device& device, Communicator& world, KernelsFactory make_kernels,
              DeviceKernelsFactory make_device_kernels = nullptr);

  Device& device() { return device_; }
  Communicator& world() { return world_; }
  // Made on first use.
  RankStreams& streams(Lane lane = Lane::kInLine);
  const KernelsFactory& make_kernels() const { return make_kernels_; }
  // Kernels that are told by each pass which memory of the host or of the device it uses, of the kind of `weights`.
  // kUnimplemented for the device's where the backend has none of its own.
  StatusOr<std::unique_ptr<Kernels>> MakeKernels(const Layer& layer, const LayerShard& shard,
                                                 const WeightsMemory& weights) const;

  // Where it is set, the work of layers follows what the job has queued on that stream of its own, which then waits for
  // it, and calls return once their work is queued (MoeLayer). Rows and weights then lie in the device's memory.
  void SetJobStream(std::optional<Device::JobStream> stream) { job_stream_ = stream; }
  // Holds the lane's compute stream until the job's stream has come this far.
  Status FollowJob(Lane lane);
  // Hands what a call in line has queued over to the job, whose stream waits for the compute stream; without a job's
  // stream it blocks until the work is done. Of another lane: leaves the work queued.
  Status HandOver(Lane lane);
  // Blocks until what the last call of the lane has left queued is done: one at a time is under way.
  Status AwaitHandedOver(Lane lane);
  // Returns once the job may use what the last call of the lane has left queued: its stream then waits for that, or,
  // without a job's stream, it is done.
  Status Finish(Lane lane);

  // Of a resolved layout: the own place in its pipeline stage, and the groups of the own stage. Sets of different
  // numbers, of which each lane has its own, may be used by different streams at once; `ctas` is that of
  // GroupCommunicators::Make. The first call for a layout, set and limit splits: collective, blocks.
  int StageRank(const Layout& layout) const;
  StatusOr<GroupCommunicators*> GroupsOf(const Layout& layout, int set = 0, int ctas = 0);
  // The ranks of the own stage. Where the stage is not the world, the first call for a degree splits, too.
  StatusOr<Communicator*> StageOf(const Layout& layout);

  // What a runner of a graph of `layout` borrows; `ctas`: the graph's communication_ctas.
  StatusOr<RankContext> ContextOf(const Layout& layout, Kernels& kernels, int ctas = 0, Lane lane = Lane::kInLine);

 private:
  // Tensor, expert, expert-sharding and pipeline degree, the number of the set, and the limit on CTAs.
  using GroupsKey = std::tuple<int, int, int, int, int, int>;

  Device& device_;
  Communicator& world_;
  const KernelsFactory make_kernels_;
  const DeviceKernelsFactory make_device_kernels_;
  std::optional<Device::JobStream> job_stream_;
  std::array<bool, kLanes> handed_over_ = {};
  std::map<int, std::unique_ptr<Communicator>> stages_;  // By pipeline degree.
  std::map<GroupsKey, GroupCommunicators> groups_;
  std::array<std::optional<RankStreams>, kLanes>
      streams_;  // Last, so that their threads end before what they use goes.
};

}  // namespace moeplan::executor
