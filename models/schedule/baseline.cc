#include "models/schedule/families.h"

namespace moeplan {
namespace {

// Every rank of an ESP group computes its shard of the experts on `blocks` source batches, gathered over ESP when there
// is more than one.
TaskGraph BuildSharded(const Workload& workload, const Cluster& cluster, int blocks) {
  GraphBuilder build(workload, cluster);
  const std::vector<Extent> cells = {{Axis::kExpertRank, workload.layout.expert_parallel},
                                     {Axis::kBlock, blocks},
                                     {Axis::kExpert, build.local_experts()}};
  BufferId tokens = build.Input();
  if (blocks > 1) {
    tokens = build.AllGather("gather_input", Group::kShard, tokens,
                             build.TokenBuffer("gathered_input", {{Axis::kBlock, blocks}}, build.tokens()));
  }
  const BufferId routing = build.Gate(tokens);
  const BufferId slots = build.SlotBuffer("slots", cells);
  build.Dispatch(tokens, routing, slots);
  const BufferId received =
      build.AllToAll("dispatch_a2a", Group::kExpert, slots, build.SlotBuffer("received_slots", cells));
  const BufferId partial = build.SlotBuffer("expert_partial", cells);
  build.Expert(received, partial);
  const BufferId computed =
      build.AllReduce("reduce_shards", Group::kShard, partial, build.SlotBuffer("expert_output", cells));
  const BufferId returned =
      build.AllToAll("combine_a2a", Group::kExpert, computed, build.SlotBuffer("returned_slots", cells));
  const BufferId output = build.TokenBuffer("output", {}, build.tokens());
  build.Combine(returned, routing, output);
  return std::move(build).Finish(output);
}

}  // namespace

// Parm §II: gather the source batches of the ESP group and let every rank of it compute them all. Where ESP and MP
// overlap the gathered batches are copies of each other; that is the waste Parm removes.
TaskGraph BuildBaseline(const Knobs&, const Workload& workload, const Cluster& cluster) {
  return BuildSharded(workload, cluster, workload.layout.expert_sharding_parallel);
}

// MoNTA's baseline: ESP = MP, so every rank of the ESP group has the tokens already.
TaskGraph BuildBaselineTp(const Knobs&, const Workload& workload, const Cluster& cluster) {
  return BuildSharded(workload, cluster, /*blocks=*/1);
}

}  // namespace moeplan
