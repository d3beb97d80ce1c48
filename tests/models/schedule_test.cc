#include "models/schedule/schedules.h"

#include <gtest/gtest.h>

#include "models/measurement/candidates.h"

namespace moeplan {
namespace {

// 2 nodes of 2 ranks. 64 tokens of 8 BF16 elements, 4 experts, top 2: T = 2·1·64/4 = 32 slots.
constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};
Workload WorkloadOf(const Layout& layout) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = layout;
  workload.min_chunk_bytes = 1;
  const auto resolved = ResolveWorkload(workload, kCluster);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return *resolved;
}

TaskGraph Build(const Knobs& knobs, const Workload& workload) {
  const auto graph = BuildSchedule(knobs, workload, kCluster);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *graph;
}

double SizeOf(const TaskGraph& graph, const std::string& task) {
  for (const Task& one : graph.tasks) {
    if (one.name == task) return one.size;
  }
  ADD_FAILURE() << "no task " << task;
  return -1;
}

TEST(ScheduleTest, BaselineMovesTheGatheredBatches) {
  const TaskGraph graph =
      Build({.family = Family::kBaseline},
            WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2}));
  const double row_bytes = 16;
  EXPECT_EQ(SizeOf(graph, "gather_input"), 2 * 64 * row_bytes);      // N_ESP·B·L
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), 2 * 4 * 32 * row_bytes);  // y = E·T·N_ESP
  EXPECT_EQ(SizeOf(graph, "reduce_shards"), 2 * 4 * 32 * row_bytes);
  EXPECT_EQ(SizeOf(graph, "expert"), 2.0 * 2 * (2 * 4 * 32) * 8 * 8);  // 2·matrices·rows·M·H/N_ESP
}

TEST(ScheduleTest, S1MovesTheRealRowsAndTheirCounts) {
  const TaskGraph graph =
      Build({.family = Family::kParmS1},
            WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2}));
  EXPECT_EQ(SizeOf(graph, "gather_counts"), 4 * 4 * 2);             // 4·E·N_MP bytes
  EXPECT_EQ(SizeOf(graph, "counts_a2a"), 4 * 4 * 2);                // 4·E·N_ESP bytes
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), 2 * 4 * 32 / 2 * 16.0);  // y / N_MP at f = 1
  EXPECT_EQ(SizeOf(graph, "gather_output"), 64 * 16.0);             // x
  Workload roomy = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  roomy.layer.capacity_factor = 4;
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS1}, roomy), "dispatch_a2a"), 2 * 4 * 32 / 2 * 16.0)
      << "room to spare is not moved";
}

TEST(ScheduleTest, UnevenSlotsAreRoundedUpToTheShareOfARank) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.layer.capacity_factor = 33.0 / 32;  // T = 33: shares of 17 slots.
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS2}, workload), "dispatch_a2a"), 2 * 4 * 17 * 16.0);
  // Two ranks and four chunks: ceil(33 / 8) = 5 slots a chunk, and half the expert ranks' rows per all-to-all.
  EXPECT_EQ(SizeOf(Build({.family = Family::kMontaO2, .chunks = 4}, workload), "dispatch_a2a.1"), 4 * 5 * 16.0);
}

TEST(ScheduleTest, O3CopiesOnItsOwnStreamAndO2BesideTheGather) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const auto copy_stream = [&](Family family) {
    for (const Task& task : Build({.family = family, .chunks = 2}, workload).tasks) {
      if (task.kind == TaskKind::kCopy) return task.stream;
    }
    return StreamKind::kCompute;
  };
  EXPECT_EQ(copy_stream(Family::kMontaO2), StreamKind::kIntraNode);
  EXPECT_EQ(copy_stream(Family::kMontaO3), StreamKind::kCopy);
}

TEST(ScheduleTest, TasksComeAfterWhatTheyDependOn) {
  for (const Layout& layout : {Layout{.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2},
                               Layout{.expert_parallel = 4}, Layout{.tensor_parallel = 4, .expert_parallel = 2}}) {
    const Workload workload = WorkloadOf(layout);
    for (const Family family : kFamilies) {
      if (!FamilyAllowed(family, workload).ok()) continue;
      const TaskGraph graph = Build(WithPieces({.family = family}, MaxPieces(family, workload)), workload);
      for (size_t id = 0; id < graph.tasks.size(); ++id) {
        for (const TaskId before : graph.tasks[id].dependencies) EXPECT_LT(before, static_cast<TaskId>(id));
        // Only the first task, on the input or a gather of it, waits for nothing.
        EXPECT_EQ(graph.tasks[id].dependencies.empty(), id == 0) << graph.tasks[id].name;
      }
    }
  }
}

TEST(ScheduleTest, WithoutTensorParallelismAllUnchunkedFamiliesAreOneGraph) {
  const Workload workload = WorkloadOf({.expert_parallel = 4});
  const TaskGraph baseline = Build({.family = Family::kBaseline}, workload);
  for (const Family family :
       {Family::kBaselineTp, Family::kParmS1, Family::kParmS2, Family::kMontaO1, Family::kPipeline}) {
    EXPECT_TRUE(SameTasks(baseline, Build({.family = family}, workload))) << Name(family);
  }
  EXPECT_FALSE(SameTasks(baseline, Build({.family = Family::kMontaO2, .chunks = 2}, workload)));
}

TEST(ScheduleTest, FamiliesThatDoNotFitSayWhy) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 4});
  EXPECT_EQ(FamilyAllowed(Family::kMontaO1, workload).message(),
            "needs expertShardingParallel = tensorParallel, found 1 and 2");
  EXPECT_EQ(BuildSchedule({.family = Family::kParmS1, .chunks = 2}, workload, kCluster).status().code(),
            StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace moeplan
