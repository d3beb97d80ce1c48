// One operation of an executor, ready to be measured: a collective on all its sibling groups, or a kernel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/all_to_all/phased_all_to_all.h"
#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/rank_backend.h"
#include "models/cost/samples.h"
#include "models/workload/workload.h"

namespace moeplan::agent {

// How the groups of a collective lie over the ranks: a layout whose groups have the key's shape, and which of them.
struct GroupPlacement {
  Layout layout;
  Group group = Group::kExpert;
};
// kInvalidInput when the shape does not tile `ranks` ranks on nodes of `ranks_per_node`.
StatusOr<GroupPlacement> PlacementOf(const CollectiveKey& key, int ranks, int ranks_per_node);

class Operation {
 public:
  virtual ~Operation() = default;
  virtual void Enqueue(executor::Stream& stream) = 0;
  // What part of an Enqueue's time the key is charged.
  virtual double share() const { return 1; }
};

// What a collective runs on; borrowed.
struct CollectiveContext {
  executor::Device& device;
  executor::Communicator& group;
  executor::Communicator* gather = nullptr;  // The MP group of an ALL_TO_ALL_ALL_GATHER.
  executor::AllToAllTeams* teams = nullptr;  // Of an all-to-all that is not DIRECT; so is `inside_nodes`.
  executor::Stream* inside_nodes = nullptr;
};
// `bytes` is rounded up to what the group divides.
StatusOr<std::unique_ptr<Operation>> MakeCollective(const CollectiveKey& key, double bytes,
                                                    const CollectiveContext& context);

// Those of `seed`; without values where the rank does not compute.
executor::LayerWeights WeightsOn(const executor::Rank& rank, const Layer& layer, const executor::LayerShard& shard,
                                 uint64_t seed);

// A kernel of the rank's backend on the shapes of `workload`, as one rank of its layout runs it. Blocks.
// kUnimplemented: a kernel of the rest of a step, of which the rank has none (Rank::StepKernel).
StatusOr<std::unique_ptr<Operation>> MakeKernel(const KernelKey& key, double size, executor::Rank& rank,
                                                const Workload& workload);

}  // namespace moeplan::agent
