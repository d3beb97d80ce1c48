// What the runtime may cost: two microseconds a task, and after the first run of a graph no memory and no thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>

#include "executor/host/elements.h"
#include "models/schedule/schedules.h"
#include "tests/bench/counted.h"
#include "tests/bench/empty_graph.h"
#include "tests/executor/layer_on_rank.h"

namespace moeplan {
namespace {

using testing::Case;
using testing::LayerOnRank;
using testing::Rank;

TEST(RuntimeCostTest, AnEmptyTaskTakesNoMoreThanTwoMicroseconds) {
  if (!bench::Counts()) GTEST_SKIP() << "sanitizers take their time";
  constexpr int kRuns = 300, kTasks = 256;
  for (const bench::Shape shape : {bench::Shape::kOneStream, bench::Shape::kChain, bench::Shape::kPipeline}) {
    SCOPED_TRACE(static_cast<int>(shape));
    bench::EmptyRun run(shape, kTasks);
    std::vector<double> times_s = run.TaskTimesS(kRuns);
    std::ranges::sort(times_s);
    EXPECT_LE(times_s[times_s.size() / 2], 2e-6);
  }
}

struct Asked {
  uint64_t allocations, threads;
};
Asked AskedSoFar() { return {bench::Allocations(), bench::ThreadsMade()}; }

// Runs `graph` on ranks as threads; what later runs ask for, all ranks together.
Asked AskedAfterTheFirstRun(const Case& test, const TaskGraph& graph) {
  const Phase phase = test.workload.phase;
  const int ranks = Ranks(test.cluster);
  std::barrier ready(ranks), done(ranks);
  Asked before{}, after{};
  testing::RunRanks(ranks, [&](const testing::Rank& rank) {
    LayerOnRank layer(test, rank);
    const std::unique_ptr<executor::GraphRunner> runner = layer.Prepare(graph);
    const executor::ElementType type = executor::ElementTypeOf(layer.layer.bytes_per_element);
    executor::Store(layer.input.data(), type, layer.input.size(), runner->input());
    if (phase != Phase::kForward) {
      executor::Store(layer.output_gradient.data(), type, layer.output_gradient.size(), runner->output_gradient());
    }
    const auto run = [&] {
      runner->Enqueue(phase);
      const Status status = rank.device.Synchronize();
      if (!status.ok()) ADD_FAILURE() << status.message();
    };
    run();
    ready.arrive_and_wait();
    if (rank.rank == 0) before = AskedSoFar();
    ready.arrive_and_wait();
    for (int i = 0; i < 3; ++i) run();
    done.arrive_and_wait();
    if (rank.rank == 0) after = AskedSoFar();
    done.arrive_and_wait();
  });
  return {after.allocations - before.allocations, after.threads - before.threads};
}

void ExpectNothingAsked(const Case& test) {
  for (const Knobs& knobs : testing::AllKnobs(test)) {
    SCOPED_TRACE(testing::Describe(knobs) + "; " + testing::Describe(test));
    const StatusOr<TaskGraph> graph = BuildSchedule(knobs, test.workload, test.cluster);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const Asked asked = AskedAfterTheFirstRun(test, *graph);
    EXPECT_EQ(asked.allocations, 0U);
    EXPECT_EQ(asked.threads, 0U);
  }
}

Case CaseOf(Phase phase, GateKind gate, const Layout& layout) {
  Case test;
  test.cluster = {.nodes = 2, .gpus_per_node = 2};
  test.workload = {.layer = {.batch = 1,
                             .sequence_length = 13,
                             .model_dim = 12,
                             .hidden_dim = 20,
                             .experts = 4,
                             .top_k = gate == GateKind::kSwitch ? 1 : 2,
                             .capacity_factor = 0.8,
                             .bytes_per_element = phase == Phase::kForward ? 4 : 2,
                             .expert_matrices = 3,
                             .gate = gate,
                             .expert_bias = true,
                             .shared_hidden_dim = 6},
                   .layout = layout,
                   .phase = phase};
  test.workload.min_chunk_bytes = 1;
  test.workload.max_chunks = 3;
  test.workload.max_partition_degree = 2;
  const auto resolved = ResolveWorkload(test.workload, test.cluster);
  MOEPLAN_CHECK(resolved.ok());
  test.workload = *resolved;
  return test;
}

constexpr GateKind kEveryGate[] = {GateKind::kTopK,         GateKind::kSwitch, GateKind::kBatchPrioritized,
                                   GateKind::kExpertChoice, GateKind::kRandom, GateKind::kHash};

class RuntimeCostOfLayersTest : public ::testing::TestWithParam<Phase> {
 protected:
  void SetUp() override {
    if (!bench::Counts()) GTEST_SKIP() << "nothing is counted under a sanitizer";
  }
};

TEST_P(RuntimeCostOfLayersTest, NoScheduleAsksForMemoryOrThreadsAfterItsFirstRun) {
  // Two nodes of two ranks: all-to-alls over two nodes, over both ranks of a node, and over all four ranks.
  for (const auto& [tensor, expert, shards] : {std::array{2, 2, 1}, {1, 4, 1}, {2, 2, 2}, {1, 2, 2}}) {
    const Layout layout = {.tensor_parallel = tensor, .expert_parallel = expert, .expert_sharding_parallel = shards};
    ExpectNothingAsked(CaseOf(GetParam(), GateKind::kTopK, layout));
  }
}

TEST_P(RuntimeCostOfLayersTest, NoGateAsksForMemoryAfterItsFirstRun) {
  for (const GateKind gate : kEveryGate) ExpectNothingAsked(CaseOf(GetParam(), gate, {.expert_parallel = 4}));
}

INSTANTIATE_TEST_SUITE_P(Phases, RuntimeCostOfLayersTest, ::testing::Values(Phase::kForward, Phase::kTraining),
                         [](const auto& test) { return test.param == Phase::kForward ? "forward" : "training"; });

}  // namespace
}  // namespace moeplan
