// What all layers of a rank share: the backend they run on (device, network, kernels), its streams, and the
// communicators of each layout's stage and groups, made once.
//
// Making communicators is collective: every rank of the job asks for the same layouts in the same order. One thread.
#pragma once

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

class RankRuntime {
 public:
  // `world`: the ranks of the job. Both are borrowed, must outlive the runtime, and serve nobody else meanwhile.
  RankRuntime(Device& device, Communicator& world, KernelsFactory make_kernels);

  Device& device() { return device_; }
  Communicator& world() { return world_; }
  // Made on first use.
  RankStreams& streams();
  const KernelsFactory& make_kernels() const { return make_kernels_; }

  // Of a resolved layout: the own place in its pipeline stage, and the groups of the own stage. Sets of different
  // numbers may be used by different streams at once; `ctas` is that of GroupCommunicators::Make. The first call for a
  // layout, set and limit splits: collective, blocks.
  int StageRank(const Layout& layout) const;
  StatusOr<GroupCommunicators*> GroupsOf(const Layout& layout, int set = 0, int ctas = 0);
  // The ranks of the own stage. Where the stage is not the world, the first call for a degree splits, too.
  StatusOr<Communicator*> StageOf(const Layout& layout);

  // What a runner of a graph of `layout` borrows; `ctas`: the graph's communication_ctas.
  StatusOr<RankContext> ContextOf(const Layout& layout, Kernels& kernels, int ctas = 0);

 private:
  // Tensor, expert, expert-sharding and pipeline degree, the number of the set, and the limit on CTAs.
  using GroupsKey = std::tuple<int, int, int, int, int, int>;

  Device& device_;
  Communicator& world_;
  const KernelsFactory make_kernels_;
  std::map<int, std::unique_ptr<Communicator>> stages_;  // By pipeline degree.
  std::map<GroupsKey, GroupCommunicators> groups_;
  std::optional<RankStreams> streams_;  // Last, so that their threads end before what they use goes.
};

}  // namespace moeplan::executor
