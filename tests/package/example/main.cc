// Four ranks, here threads of one process, run one MoE layer forward and backward.
#include <algorithm>
#include <cstdio>
#include <future>

#include "executor/host/host_rank.h"
#include "executor/moe_layer.h"

using namespace moeplan;
using namespace moeplan::executor;

const Layer kLayer{.batch = 2,
                   .sequence_length = 32,
                   .model_dim = 64,
                   .hidden_dim = 128,
                   .experts = 8,
                   .top_k = 2,
                   .capacity_factor = 1.25,
                   .bytes_per_element = 4};
const Layout kLayout{.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
const LayerPlan kPlan{.workload = {.layer = kLayer, .layout = kLayout, .phase = Phase::kTraining},
                      .cluster = {.nodes = 1, .gpus_per_node = 4},
                      .knobs = {.family = Family::kParmS2}};

Status RunRank(int rank, std::unique_ptr<Mesh> mesh) {
  HostRank host(std::move(mesh), /*deadline_s=*/30);
  const LayerWeights weights = MakeWeights(kLayer, ShardOf(kLayer, kLayout, rank), /*seed=*/1);
  LayerGradients gradients = ZeroGradients(weights);
  ASSIGN_OR_RETURN(MoeLayer layer, MoeLayer::Make(kPlan, host.runtime(), weights, &gradients));
  std::vector<float> rows = MakeInput(kLayer, kLayout, /*batch=*/rank / kLayout.tensor_parallel, /*seed=*/1);
  const auto bytes = std::as_writable_bytes(std::span(rows));
  RETURN_IF_ERROR(layer.Forward(bytes, bytes));  // The layer's output in place of its input.
  std::printf("rank %d: largest output %g\n", rank, std::ranges::max(rows));
  return layer.Backward(bytes, bytes);  // As if the loss were half the sum of the output's squares.
}

int main() {
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(4);  // Between processes: executor/host/gloo_mesh.h.
  std::vector<std::future<Status>> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(std::async(std::launch::async, RunRank, rank, std::move(meshes[rank])));
  int failed = 0;
  for (std::future<Status>& rank : ranks) {
    const Status status = rank.get();
    if (!status.ok()) failed += std::fprintf(stderr, "%s\n", status.message().c_str()) > 0;
  }
  return failed;
}
