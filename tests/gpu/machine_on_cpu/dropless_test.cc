// A dropless layer on cards: pairs are counted there, and the layer then runs with as many slots as they need.
#include <gtest/gtest.h>

#include <thread>

#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/training_layer.h"
#include "tests/executor/example_layer.h"

namespace moeplan::executor::cuda {
namespace {

using namespace testing::example_layer;

// Forward and backward of a rank whose tokens lean towards expert `hot`, unless that is -1, against the reference.
void ExpectEqual(TrainingLayer& moe, const LayerPlan& plan, int rank, uint64_t seed, int hot) {
  const Layer& layer = plan.workload.layer;
  const LayerWeights weights = WeightsOf(plan, rank, seed);
  Rows rows = RowsOf(plan, rank, seed);
  if (hot >= 0) LeanTowards(hot, layer, weights, rows.input);
  const Reference reference = ReferenceOf(plan, rows, seed);
  Bytes there = RowBytesOf(rows.input, layer), back = RowBytesOf(rows.output_gradient, layer);
  auto pass = moe.Forward(static_cast<int>(rows.input.size()) / layer.model_dim, there, there, weights);
  ASSERT_TRUE(pass.ok()) << pass.status().message();
  ExpectClose(RowFloatsOf(there, layer), reference.forward.output, reference.forward.largest_magnitude, layer,
              "output");
  EXPECT_EQ(DroppedPairs(*pass->router_statistics()), 0);
  LayerGradients gradients = ZeroGradients(weights);
  std::vector<float> gate_gradient(weights.gate.size());
  ASSERT_EQ(pass->Backward(back, back, &gradients, gate_gradient), OkStatus());
  ExpectClose(RowFloatsOf(back, layer), reference.gradients.input.values, reference.gradients.input.largest_magnitude,
              layer, "input gradient");
  ExpectClose(gate_gradient, reference.gradients.gate.values, reference.gradients.gate.largest_magnitude, layer,
              "gate gradient");
}

TEST(DroplessTest, EveryPairIsSent) {
  for (const Family family : {Family::kBaseline, Family::kParmS1, Family::kParmS2, Family::kMontaO3, Family::kPipeline,
                              Family::kOncePerNode}) {
    SCOPED_TRACE(static_cast<int>(family));
    LayerPlan plan = PlanOf(family);
    plan.workload.layer.capacity_factor = 0;
    auto meshes = MakeInProcessMeshes(kRanks);
    std::vector<std::thread> threads;
    for (int place = 0; place < kRanks; ++place) {
      threads.emplace_back([&, place] {
        const auto rank = *MakeCudaRank({.memory = MemoryKind::kDevice}, [&](CudaDevice& device) {
          return MakeInProcessExchange(std::move(meshes[place]), device, /*deadline_s=*/20);
        });
        const auto moe = TrainingLayer::Make(plan, rank->runtime());
        ASSERT_TRUE(moe.ok()) << moe.status().message();
        for (const int hot : {-1, 3, -1}) ExpectEqual(**moe, plan, place, /*seed=*/1, hot);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace moeplan::executor::cuda
