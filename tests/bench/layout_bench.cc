// How long a ranking of layouts takes, and how much of the space its bounds leave.
//
//   layout_bench [RUNS]
//
// Mixtral 8x7B and a model of 60 layers with 128 experts on 1,024 GPUs, on a made-up profile of nodes of eight.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "planner/layout/rank_layouts.h"

namespace moeplan {
namespace {

Profile MadeUpProfile() {
  Profile profile;
  profile.cluster = {.nodes = 8, .gpus_per_node = 8, .peak_flops_per_s = 1e15, .device_memory_bytes = 8e10};
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
    for (int size = 2; size <= 8; size *= 2) {
      profile.collectives.push_back(
          {{.collective = collective, .group = {size, size}}, MakeCostModel(AlphaBeta{1e-5, 4e-12})});
      profile.collectives.push_back(
          {{.collective = collective, .group = {size, 1}}, MakeCostModel(AlphaBeta{2e-5, 2.5e-11})});
    }
  }
  profile.kernels = {{{.kernel = Kernel::kExpertGemm}, MakeCostModel(AlphaBeta{1e-5, 1.6e-15})},
                     {{.kernel = Kernel::kGate}, MakeCostModel(AlphaBeta{6e-6, 1e-12})},
                     {{.kernel = Kernel::kPermute}, MakeCostModel(AlphaBeta{6e-6, 1e-12})},
                     {{.kernel = Kernel::kDeviceCopy}, MakeCostModel(AlphaBeta{4e-6, 7e-13})}};
  return profile;
}

ModelConfig Model(int layers, int model_dim, int heads, int experts, int top_k, int expert_hidden_dim) {
  ModelConfig model;
  model.moe_layer.assign(layers, true);
  model.model_dim = model_dim;
  model.heads = heads;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.experts = experts;
  model.top_k = top_k;
  model.expert_hidden_dim = expert_hidden_dim;
  model.gated_mlp = true;
  model.vocab = 32000;
  model.tied_embeddings = false;
  return model;
}

void Report(const char* name, const ModelConfig& model, int runs) {
  const LayoutRequest request = {
      .model = model, .gpus = 1024, .global_batch = 2048, .sequence_length = 4096, .zero_stage = 1};
  const Profile profile = MadeUpProfile();
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<double> times_s;
  StatusOr<LayoutAnswer> answer = LayoutAnswer{};
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    answer = planner::RankLayouts(request, profile, {.threads = threads});
    times_s.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!answer.ok()) {
      std::printf("%s: %s\n", name, answer.status().message().c_str());
      return;
    }
  }
  std::ranges::sort(times_s);
  std::printf("%-12s %8.3f %8.3f %11d %8d %8d\n", name, times_s.front(), times_s[times_s.size() / 2],
              answer->enumerated, answer->fitting, answer->priced);
}

}  // namespace
}  // namespace moeplan

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  if (runs < 1) return std::fprintf(stderr, "usage: layout_bench [RUNS]\n"), 1;
  std::printf("%d runs each, 1,024 GPUs; seconds\n", runs);
  std::printf("%-12s %8s %8s %11s %8s %8s\n", "model", "best", "median", "enumerated", "fitting", "priced");
  moeplan::Report("mixtral-8x7b", moeplan::Model(32, 4096, 32, 8, 2, 14336), runs);
  moeplan::Report("128 experts", moeplan::Model(60, 5120, 40, 128, 6, 1536), runs);
}
