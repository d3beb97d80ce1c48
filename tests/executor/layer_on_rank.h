// Everything a rank needs to run graphs of one layer.
#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "executor/runtime/rank_runtime.h"
#include "models/check.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/random_case.h"

namespace moeplan::testing {

struct LayerOnRank {
  LayerOnRank(const Case& test, const Rank& rank)
      : rank(rank),
        layer(test.workload.layer),
        weights(executor::MakeWeights(layer, executor::ShardOf(layer, test.workload.layout, rank.rank), kWeightSeed)),
        input(InputOf(test, rank.rank / test.workload.layout.tensor_parallel)),
        output_gradient(executor::MakeOutputGradient(layer, test.workload.layout,
                                                     rank.rank / test.workload.layout.tensor_parallel, kWeightSeed)),
        gradients(executor::ZeroGradients(weights)),
        kernels(*rank.make_kernels(layer, weights, &gradients)),
        runtime(rank.device, rank.world, rank.make_kernels) {
    const auto groups = runtime.GroupsOf(test.workload.layout);
    if (!groups.ok()) std::fprintf(stderr, "%s\n", groups.status().message().c_str());
    MOEPLAN_CHECK(groups.ok());
    kernels->TakeWeights(runtime.streams()[StreamKind::kCompute]);
    runtime.streams().Fork();
  }

  std::unique_ptr<executor::GraphRunner> Prepare(const TaskGraph& graph) {
    auto runner = executor::GraphRunner::Prepare(graph, *runtime.ContextOf(graph.layout, *kernels));
    MOEPLAN_CHECK(runner.ok());
    return *std::move(runner);
  }

  // Behind what is queued, `gradients` have those of the run.
  void GiveGradients() {
    runtime.streams().Join();
    kernels->GiveGradients(runtime.streams()[StreamKind::kCompute]);
  }

  const Rank rank;
  const Layer layer;
  const executor::LayerWeights weights;
  const std::vector<float> input, output_gradient;
  executor::LayerGradients gradients;
  const std::unique_ptr<executor::Kernels> kernels;
  executor::RankRuntime runtime;
};

}  // namespace moeplan::testing
