// How long PlanGraph takes for GPT2-L-MoE (24 layers, every other one with 32 experts over 16 GPUs, batches of 48 ×
// 512) when every time is in the graph already: median and longest of 50 calls, and what came of it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "planner/lancet/model_graph.h"
#include "planner/rules/lancet.h"

namespace moeplan {
namespace {

TrainingGraph Gpt2LMoe(bool paper_limits) {
  ModelConfig model = {.model_dim = 1024,
                       .dense_hidden_dim = 4096,
                       .heads = 16,
                       .kv_heads = 16,
                       .head_dim = 64,
                       .experts = 32,
                       .top_k = 1,
                       .expert_hidden_dim = 4096,
                       .vocab = 50257};
  for (int i = 0; i < 24; ++i) model.moe_layer.push_back(i % 2 == 1);
  Profile profile = {.cluster = {.nodes = 2, .gpus_per_node = 8}};
  const auto line = [](double alpha_s, double beta_s) { return MakeCostModel(AlphaBeta{alpha_s, beta_s}); };
  profile.collectives = {{{.collective = Collective::kAllToAll, .group = {16, 8}}, line(5e-5, 8e-11)}};
  profile.kernels = {{{.kernel = Kernel::kExpertGemm}, line(1e-5, 6.7e-15)},
                     {{.kernel = Kernel::kDeviceCopy}, line(5e-6, 1.4e-12)},
                     {{.kernel = Kernel::kGate}, line(1e-5, 4e-12)},
                     {{.kernel = Kernel::kPermute}, line(1e-5, 2e-12)}};
  const planner::ModelGraphOptions options = {.batch = 48,
                                              .sequence_length = 512,
                                              .expert_parallel = 16,
                                              .ranks_per_node = 8,
                                              .gate = GateKind::kSwitch,
                                              .paper_limits = paper_limits};
  PriceNotes notes;
  return *planner::TrainingGraphOf(model, options, profile, notes);
}

void Measure(const char* name, const TrainingGraph& graph) {
  std::vector<double> times_ms;
  LancetAnswer answer;
  for (int run = 0; run < 50; ++run) {
    const auto start = std::chrono::steady_clock::now();
    answer = planner::PlanGraph(graph, nullptr)->lancet;
    times_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(times_ms);
  std::printf(
      "%s: %zu instructions, planned in %.1f ms (longest %.1f ms); step %.2f ms instead of %.2f ms, %zu ranges\n", name,
      graph.instructions.size(), times_ms[times_ms.size() / 2], times_ms.back(), 1e3 * answer.time_s,
      1e3 * answer.unscheduled_time_s, answer.partitions.size());
}

}  // namespace
}  // namespace moeplan

int main() {
  moeplan::Measure("GPT2-L-MoE, groups and ranges of the paper", moeplan::Gpt2LMoe(/*paper_limits=*/true));
  moeplan::Measure("GPT2-L-MoE, no groups, no limit", moeplan::Gpt2LMoe(/*paper_limits=*/false));
}
