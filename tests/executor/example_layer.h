// A small layer on four ranks as threads, its inputs, and the reference's answers: what tests of layers share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "executor/host/elements.h"
#include "executor/moe_layer.h"
#include "executor/reference/reference_gradients.h"
#include "models/routing/expert_load.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::testing::example_layer {

using namespace executor;

constexpr int kRanks = 4;

using Bytes = std::vector<std::byte>;

// On two nodes of two ranks, one MP group on each.
inline LayerPlan PlanOf(Family family, int bytes_per_element = 4) {
  return {.workload = {.layer = {.batch = 2,
                                 .sequence_length = 9,
                                 .model_dim = 12,
                                 .hidden_dim = 10,
                                 .experts = 4,
                                 .top_k = 2,
                                 .capacity_factor = 0.8,
                                 .bytes_per_element = bytes_per_element,
                                 .expert_matrices = 3,
                                 .expert_bias = true,
                                 .shared_hidden_dim = 6,
                                 .aux_loss_coefficient = 2,
                                 .z_loss_coefficient = 1},
                       .layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2},
                       .min_chunk_bytes = 1,
                       .phase = Phase::kTraining},
          .cluster = {.nodes = 2, .gpus_per_node = 2},
          .knobs = {.family = family}};
}

// Every rank has a source batch and an expert of its own.
inline LayerPlan ExpertParallelPlan() {
  LayerPlan plan = PlanOf(Family::kBaseline);
  plan.workload.layout = {.expert_parallel = 4};
  return plan;
}

inline LayerWeights WeightsOf(const LayerPlan& plan, int rank, uint64_t seed) {
  return MakeWeights(plan.workload.layer, ShardOf(plan.workload.layer, plan.workload.layout, rank), seed);
}

inline Bytes RowBytesOf(const std::vector<float>& values, const Layer& layer) {
  Bytes bytes(values.size() * layer.bytes_per_element);
  Store(values.data(), ElementTypeOf(layer.bytes_per_element), values.size(), bytes.data());
  return bytes;
}

inline std::vector<float> RowFloatsOf(const Bytes& bytes, const Layer& layer) {
  std::vector<float> values(bytes.size() / layer.bytes_per_element);
  Load(bytes.data(), ElementTypeOf(layer.bytes_per_element), values.size(), values.data());
  return values;
}

struct Rows {
  std::vector<float> input, output_gradient;
};
inline Rows RowsOf(const LayerPlan& plan, int rank, uint64_t seed) {
  const Layer& layer = plan.workload.layer;
  const int batch = rank / plan.workload.layout.tensor_parallel;
  return {MakeInput(layer, plan.workload.layout, batch, seed),
          MakeOutputGradient(layer, plan.workload.layout, batch, seed)};
}
// Turns every token towards the gate's row of one expert, which nearly all then choose, and others hardly any.
inline void LeanTowards(int expert, const Layer& layer, const LayerWeights& weights, std::vector<float>& input) {
  const float* favoured = weights.gate.data() + static_cast<size_t>(expert) * layer.model_dim;
  for (size_t i = 0; i < input.size(); ++i) {
    const float leaning = 0.25F * input[i] + 3 * favoured[i % layer.model_dim];
    input[i] = layer.bytes_per_element == 2 ? RoundToBfloat16(leaning) : leaning;
  }
}

struct Reference {
  ReferenceOutput forward;
  ReferenceGradients gradients;
};
inline Reference ReferenceOf(const LayerPlan& plan, const Rows& rows, uint64_t seed) {
  const Layer& layer = plan.workload.layer;
  const LayerWeights full = MakeWeights(layer, ShardOf(layer, {}, 0), seed);
  Reference reference;
  const int slots = static_cast<int>(SlotsOfExpert(plan.workload));
  reference.forward = ComputeReference(layer, full, rows.input, slots, /*slices=*/1);
  reference.gradients = ComputeReferenceGradients(layer, full, rows.input, rows.output_gradient, reference.forward);
  return reference;
}

inline void ExpectClose(std::span<const float> found, std::span<const double> expected, double magnitude,
                        const Layer& layer, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const double tolerance = (layer.bytes_per_element == 4 ? 1e-5 : 2e-2) * magnitude;
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << what << " " << i;
}

inline void OnEveryRank(const std::function<void(HostRank& host, int rank)>& body) {
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(kRanks);
  testing::RunHostRanks(
      kRanks, [&](int rank) { return std::move(meshes[rank]); },
      [&](HostRank& host) { body(host, host.world().rank()); });
}

}  // namespace moeplan::testing::example_layer
