// Which collectives of a layer run on streams of which priority, and that it computes the same.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/layer/layer_weights.h"
#include "executor/moe_layer.h"
#include "models/schedule/schedules.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kRanks = 4;

// What each task ran at, on any rank.
class Priorities {
 public:
  void Add(const std::string& task, int priority) {
    const std::lock_guard lock(mutex_);
    of_task_[task].insert(priority);
  }
  const std::map<std::string, std::set<int>>& of_task() const { return of_task_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::set<int>> of_task_;
};

class WatchedExchange final : public PartExchange {
 public:
  WatchedExchange(std::unique_ptr<PartExchange> exchange, Priorities& priorities)
      : exchange_(std::move(exchange)), priorities_(priorities) {}

  int rank() const override { return exchange_->rank(); }
  int size() const override { return exchange_->size(); }
  bool capturable() const override { return exchange_->capturable(); }
  Status Exchange(std::span<const Part> sends, std::span<const Part> receives, const std::string& task,
                  Stream& stream) override {
    Note(task, stream);
    return exchange_->Exchange(sends, receives, task, stream);
  }
  Status AllGather(std::span<const std::byte> send, std::span<std::byte> recv, const std::string& task,
                   Stream& stream) override {
    Note(task, stream);
    return exchange_->AllGather(send, recv, task, stream);
  }
  StatusOr<std::unique_ptr<PartExchange>> Split(int color, int max_ctas) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PartExchange> exchange, exchange_->Split(color, max_ctas));
    return std::make_unique<WatchedExchange>(std::move(exchange), priorities_);
  }
  void Abort(const Status& why) override { exchange_->Abort(why); }

 private:
  void Note(const std::string& task, Stream& stream) {
    int priority = 0;
    cudaStreamGetPriority(StreamOf(stream), &priority);
    priorities_.Add(task, priority);
  }

  const std::unique_ptr<PartExchange> exchange_;
  Priorities& priorities_;
};

// Two MP groups of two ranks, 400 bytes of gradients: 120 before the first collective between nodes of the backward
// pass, the others behind all else.
LayerPlan PlanWithGradients() {
  LayerPlan plan;
  plan.cluster = {.nodes = 2, .gpus_per_node = 2};
  plan.workload = {.layer = {.batch = 1,
                             .sequence_length = 6,
                             .model_dim = 4,
                             .hidden_dim = 8,
                             .experts = 4,
                             .top_k = 2,
                             .capacity_factor = 1,
                             .bytes_per_element = 4},
                   .layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2},
                   .min_chunk_bytes = 1,
                   .phase = Phase::kTraining,
                   .gradient_bytes = 400};
  plan.knobs.family = Family::kParmS1;
  const TaskGraph graph = *BuildSchedule(plan.knobs, *ResolveWorkload(plan.workload, plan.cluster), plan.cluster);
  const auto exchange = std::find_if(graph.tasks.begin() + graph.first_backward, graph.tasks.end(),
                                     [](const Task& task) { return task.stream == StreamKind::kInterNode; });
  plan.gradients.slices = {{.before_task = exchange->name, .bytes = 120},
                           {.after_task = graph.tasks.back().name, .bytes = 280}};
  return plan;
}

TEST(TrafficPriorityTest, GradientsOfDenseLayersGoBehindTheLayersOwnTraffic) {
  const LayerPlan plan = PlanWithGradients();
  const Workload workload = *ResolveWorkload(plan.workload, plan.cluster);
  Priorities priorities;
  auto meshes = MakeInProcessMeshes(kRanks);
  std::vector<std::thread> threads;
  for (int place = 0; place < kRanks; ++place) {
    threads.emplace_back([&, place] {
      const auto rank = *MakeCudaRank({.memory = MemoryKind::kPinned}, [&](CudaDevice& device) {
        return std::make_unique<WatchedExchange>(
            MakeInProcessExchange(std::move(meshes[place]), device, /*deadline_s=*/20), priorities);
      });
      const LayerWeights weights =
          MakeWeights(workload.layer, ShardOf(workload.layer, workload.layout, place), /*seed=*/1);
      LayerGradients gradients = ZeroGradients(weights);
      StatusOr<MoeLayer> moe = MoeLayer::Make(plan, rank->runtime(), weights, &gradients);
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      std::vector<std::byte> rows(6 * 4 * sizeof(float)), out = rows;
      const auto slices = moe->dense_gradients();
      for (const std::span<std::byte> slice : slices)
        std::ranges::fill(std::span(reinterpret_cast<float*>(slice.data()), slice.size() / 4), 1.0F + place);
      ASSERT_TRUE(moe->Forward(rows, out).ok());
      const Status status = moe->Backward(rows, out);
      ASSERT_TRUE(status.ok()) << status.message();
      // Ranks 0 and 2 have the same dense layers, as have 1 and 3: 1 + 3 and 2 + 4.
      for (const std::span<std::byte> slice : slices) {
        for (const float sum : std::span(reinterpret_cast<float*>(slice.data()), slice.size() / 4))
          ASSERT_EQ(sum, place % 2 == 0 ? 4.0F : 6.0F);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::set<std::string> of_data;
  for (const auto& [task, ran_at] : priorities.of_task()) {
    if (task == "split") continue;
    const bool data = ran_at == std::set{-2};  // Of -5 ... 0, as StreamPriorityTest has them.
    if (data) of_data.insert(task);
    EXPECT_EQ(ran_at, std::set{data ? -2 : -5}) << task;
  }
  EXPECT_EQ(of_data, (std::set<std::string>{"dense_gradients.1", "dense_gradients.2"}));
}

}  // namespace
}  // namespace moeplan::executor::cuda
