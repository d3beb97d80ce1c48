#include <algorithm>
#include <map>

#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/runtime/graph_runner.h"
#include "models/schedule/schedules.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

template <typename T>
T Need(StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

double BusiestStreamSeconds(const Timeline& timeline) {
  std::map<StreamKind, double> busy_s;
  for (const TaskTiming& task : timeline) busy_s[task.stream] += task.end_s - task.start_s;
  return std::ranges::max_element(busy_s, {}, [](const auto& one) { return one.second; })->second;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

}  // namespace

LayerReplay MeasureLayerReplay() {
  constexpr int kWarmUps = 3, kRuns = 15, kInARow = 8;
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 1};
  const Workload workload = Need(ResolveWorkload({.layer = {.batch = 2,
                                                            .sequence_length = 4096,
                                                            .model_dim = 2048,
                                                            .hidden_dim = 2048,
                                                            .experts = 8,
                                                            .top_k = 2,
                                                            .capacity_factor = 1,
                                                            .bytes_per_element = 2}},
                                                 cluster));
  const Layer& layer = workload.layer;
  const auto rank = Need(MakeCudaRank({}, [](CudaDevice& device) -> StatusOr<std::unique_ptr<PartExchange>> {
    return MakeInProcessExchange(std::move(MakeInProcessMeshes(1)[0]), device, /*deadline_s=*/60);
  }));
  CudaDevice& device = rank->device();
  const LayerWeights weights = MakeWeights(layer, ShardOf(layer, workload.layout, /*stage_rank=*/0), /*seed=*/1);
  const auto kernels = Need(rank->runtime().make_kernels()(layer, weights, /*gradients=*/nullptr));
  const TaskGraph graph = Need(BuildSchedule({.family = Family::kBaseline}, workload, cluster));
  const auto runner = Need(GraphRunner::Prepare(graph, Need(rank->runtime().ContextOf(workload.layout, *kernels))));
  const size_t row_bytes =
      static_cast<size_t>(layer.batch * layer.sequence_length) * layer.model_dim * sizeof(uint16_t);
  const BenchMemory tokens(row_bytes);
  FillElements(tokens, ElementType::kBfloat16);
  CheckOk(
      StatusOf(cudaMemcpy(runner->input(), tokens.data(), row_bytes, cudaMemcpyDeviceToDevice), "the layer's input"));

  Stream& stream = rank->runtime().streams()[StreamKind::kCompute];
  kernels->TakeWeights(stream);
  rank->runtime().streams().Fork();
  const auto begin = device.MakeEvent(), end = device.MakeEvent();
  std::vector<double> seconds, busy_s;
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    device.Record(*begin, stream);
    for (int i = 0; i < kInARow; ++i) runner->Enqueue(Phase::kForward);
    device.Record(*end, stream);
    CheckOk(device.Synchronize());
    if (run < kWarmUps) continue;
    seconds.push_back((device.TimeS(*end) - device.TimeS(*begin)) / kInARow);
    busy_s.push_back(BusiestStreamSeconds(runner->LastTimeline(Phase::kForward)));
  }
  return {.seconds = Median(seconds), .busiest_stream_s = Median(busy_s), .is_graph = device.replays() > 0};
}

}  // namespace moeplan::executor::cuda
