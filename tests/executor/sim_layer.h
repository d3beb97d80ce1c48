// Runs layers on simulated clusters.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "executor/sim/sim_world.h"
#include "models/check.h"
#include "models/schedule/schedules.h"

namespace moeplan::testing {

struct SimLayer {
  Workload workload;  // Resolved.
  Knobs knobs;
  bool data = false;
  int runs = 1;
};

// What a rank has once its layer has run.
using LookAtRank = std::function<void(int rank, executor::Device& device, executor::GraphRunner& runner)>;

inline executor::LayerWeights WeightsOf(const SimLayer& layer, int rank) {
  const executor::LayerShard shard = executor::ShardOf(layer.workload.layer, layer.workload.layout, rank);
  if (layer.data) return executor::MakeWeights(layer.workload.layer, shard, /*seed=*/1);
  executor::LayerWeights weights;
  weights.experts.shard = shard.experts;
  weights.shared.shard = shard.shared;
  return weights;
}

// On every rank of `world`; the first error. `after_run` is called when the last rank has ended a run.
inline Status RunLayer(
    executor::SimWorld& world, const SimLayer& layer, const Cluster& cluster, const LookAtRank& look,
    const std::function<void(int run)>& after_run = [](int) {}) {
  ASSIGN_OR_RETURN(const TaskGraph graph, BuildSchedule(layer.knobs, layer.workload, cluster));
  Status failure;
  const auto run = [&](int rank) -> Status {
    ASSIGN_OR_RETURN(const auto join, world.backend().Join({.rank = rank, .ranks = world.ranks()}));
    ASSIGN_OR_RETURN(const auto self, join->Connect({}));
    const executor::LayerWeights weights = WeightsOf(layer, rank);
    executor::LayerGradients gradients = executor::ZeroGradients(weights);
    ASSIGN_OR_RETURN(const auto kernels, self->runtime().make_kernels()(layer.workload.layer, weights, &gradients));
    ASSIGN_OR_RETURN(const executor::RankContext context, self->runtime().ContextOf(layer.workload.layout, *kernels));
    ASSIGN_OR_RETURN(const auto runner, executor::GraphRunner::Prepare(graph, context));
    for (int i = 0; i < layer.runs; ++i) {
      runner->Enqueue(layer.workload.phase);
      RETURN_IF_ERROR(self->device().Synchronize());
      if (rank == world.ranks() - 1) after_run(i);
    }
    look(rank, self->device(), *runner);
    return OkStatus();
  };
  RETURN_IF_ERROR(world.Run([&](int rank) {
    const Status status = run(rank);
    if (failure.ok()) failure = status;
  }));
  return failure;
}

// Runs `program` on every rank of a cluster, in a network of its own.
inline Status OnRanks(const SimulatedCluster& cluster, bool data,
                      const std::function<void(int, executor::Rank&)>& program) {
  ASSIGN_OR_RETURN(const auto network, executor::Network::Make(cluster));
  ASSIGN_OR_RETURN(const auto world, executor::SimWorld::Make(*network, {.data = data}));
  return world->Run([&](int rank) {
    const auto join = world->backend().Join({.rank = rank, .ranks = world->ranks()});
    program(rank, **(*join)->Connect({}));
  });
}

}  // namespace moeplan::testing
