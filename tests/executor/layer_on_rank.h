// Everything a rank needs to run graphs of one layer.
#pragma once

#include <memory>
#include <vector>

#include "executor/host/host_kernels.h"
#include "executor/runtime/graph_runner.h"
#include "models/check.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/random_case.h"

namespace moeplan::testing {

struct LayerOnRank {
  LayerOnRank(const Case& test, const Rank& rank)
      : rank(rank),
        layer(test.workload.layer),
        weights(MakeWeights(layer, ShardOf(layer, test.workload.layout, rank.rank), kWeightSeed)),
        input(InputOf(test, rank.rank / test.workload.layout.tensor_parallel)),
        output_gradient(MakeOutputGradient(layer, test.workload.layout,
                                           rank.rank / test.workload.layout.tensor_parallel, kWeightSeed)),
        gradients(ZeroGradients(weights)),
        kernels(MakeHostKernels(layer, weights, &gradients)),
        streams(rank.device) {
    auto split = GroupCommunicators::Make(rank.world, test.workload.layout);
    MOEPLAN_CHECK(split.ok());
    groups = *std::move(split);
  }

  std::unique_ptr<GraphRunner> Prepare(const TaskGraph& graph) {
    auto runner = GraphRunner::Prepare(
        graph, {.rank = rank.rank, .device = rank.device, .streams = streams, .groups = groups, .kernels = *kernels});
    MOEPLAN_CHECK(runner.ok());
    return *std::move(runner);
  }

  const Rank rank;
  const Layer layer;
  const LayerWeights weights;
  const std::vector<float> input, output_gradient;
  LayerGradients gradients;
  const std::unique_ptr<Kernels> kernels;
  RankStreams streams;
  GroupCommunicators groups;
};

}  // namespace moeplan::testing
