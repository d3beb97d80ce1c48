#include "models/schedule/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>

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
    for (const Family family : {Family::kBaseline, Family::kBaselineTp, Family::kParmS1, Family::kParmS2,
                                Family::kMontaO1, Family::kMontaO2, Family::kMontaO3}) {
      if (!FamilyAllowed(family, workload).ok()) continue;
      const TaskGraph graph = Build({.family = family, .chunks = MaxChunks(family, workload)}, workload);
      for (size_t id = 0; id < graph.tasks.size(); ++id) {
        for (const TaskId before : graph.tasks[id].dependencies) EXPECT_LT(before, static_cast<TaskId>(id));
        // Only the first task, on the input or a gather of it, waits for nothing.
        EXPECT_EQ(graph.tasks[id].dependencies.empty(), id == 0) << graph.tasks[id].name;
      }
    }
  }
}

const Task* Find(const TaskGraph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.tasks, name, &Task::name);
  return found == graph.tasks.end() ? nullptr : &*found;
}

TaskId IdOf(const TaskGraph& graph, const std::string& name) {
  return static_cast<TaskId>(Find(graph, name) - graph.tasks.data());
}

bool WaitsFor(const TaskGraph& graph, const std::string& task, const std::string& before) {
  return std::ranges::count(Find(graph, task)->dependencies, IdOf(graph, before)) > 0;
}

std::string CombineExchangeOf(const TaskGraph& graph) {
  return Find(graph, "combine_saa") != nullptr ? "combine_saa" : "combine_a2a";
}

TEST(ScheduleTest, TheSharedExpertFillsTheTimeOfTheDispatchAndIsAddedByCombine) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.layer.shared_hidden_dim = 12;
  for (const Knobs& knobs :
       {Knobs{.family = Family::kBaseline}, Knobs{.family = Family::kBaselineTp}, Knobs{.family = Family::kParmS1},
        Knobs{.family = Family::kParmS2}, Knobs{.family = Family::kParmS2, .overlapped_gather = true},
        Knobs{.family = Family::kMontaO1}}) {
    SCOPED_TRACE(Name(knobs.family));
    const TaskGraph graph = Build(knobs, workload);
    EXPECT_EQ(SizeOf(graph, "shared_expert"), 2.0 * 2 * 64 * 8 * 12 / 2);  // 2·matrices·B·L·M·H_shared/N_MP
    EXPECT_EQ(SizeOf(graph, "reduce_shared"), 64 * 16.0);                  // x
    EXPECT_LT(IdOf(graph, "dispatch_a2a"), IdOf(graph, "shared_expert"));
    EXPECT_LT(IdOf(graph, "shared_expert"), IdOf(graph, "expert"));
    EXPECT_FALSE(WaitsFor(graph, "shared_expert", "dispatch_a2a"));
    EXPECT_FALSE(WaitsFor(graph, "expert", "reduce_shared"));
    EXPECT_TRUE(WaitsFor(graph, "combine", "reduce_shared"));
    // Combine reads x more: its slots, and the rows it adds, of which S1 has the own half.
    const double added = knobs.family == Family::kParmS1 ? 32 * 16.0 : 64 * 16.0;
    Workload plain = workload;
    plain.layer.shared_hidden_dim = 0;
    EXPECT_EQ(SizeOf(graph, "combine"), SizeOf(Build(knobs, plain), "combine") + added);
    // The gather inside an SAA runs over MP too, on another stream.
    EXPECT_EQ(WaitsFor(graph, CombineExchangeOf(graph), "reduce_shared"), knobs.overlapped_gather);
  }
}

TEST(ScheduleTest, ChunksShareOneSharedExpert) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.layer.shared_hidden_dim = 12;
  const TaskGraph graph = Build({.family = Family::kMontaO2, .chunks = 4}, workload);
  EXPECT_EQ(std::ranges::count_if(graph.tasks, [](const Task& task) { return task.name.starts_with("shared_"); }), 1);
  EXPECT_LT(IdOf(graph, "dispatch_a2a.4"), IdOf(graph, "shared_expert"));
}

TEST(ScheduleTest, ASharedExpertThatIsNotCutNeedsNoSum) {
  Workload workload = WorkloadOf({.expert_parallel = 4});
  workload.layer.shared_hidden_dim = 12;
  const TaskGraph graph = Build({.family = Family::kParmS1}, workload);
  EXPECT_EQ(Find(graph, "reduce_shared"), nullptr);
  EXPECT_TRUE(WaitsFor(graph, "combine", "shared_expert"));
}

TEST(ScheduleTest, WhereExpertsChooseTheRoutingHasRoomForAllOfThem) {
  Workload workload = WorkloadOf({.expert_parallel = 4});
  const auto routing_row_bytes = [&] {
    const TaskGraph graph = Build({.family = Family::kBaseline}, workload);
    return graph.buffers[std::get<GateOp>(Find(graph, "gate")->op).routing].row_bytes;
  };
  EXPECT_EQ(routing_row_bytes(), 12 * 2);  // Expert, slot and weight of each of k = 2.
  workload.layer.gate = GateKind::kExpertChoice;
  EXPECT_EQ(routing_row_bytes(), 12 * 4);
}

TEST(ScheduleTest, GatesThatLookAtTheWholeBatchRuleOutSlices) {
  Workload sliced = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 4}),
           whole = WorkloadOf({.expert_parallel = 4});
  for (const auto& [gate, cuts] :
       {std::pair(GateKind::kTopK, true), std::pair(GateKind::kRandom, true), std::pair(GateKind::kHash, true),
        std::pair(GateKind::kBatchPrioritized, false), std::pair(GateKind::kExpertChoice, false)}) {
    sliced.layer.gate = whole.layer.gate = gate;
    EXPECT_EQ(FamilyAllowed(Family::kParmS1, sliced).ok(), cuts);
    EXPECT_TRUE(FamilyAllowed(Family::kParmS1, whole).ok());
    EXPECT_TRUE(FamilyAllowed(Family::kParmS2, sliced).ok());
  }
}

TEST(ScheduleTest, WithoutTensorParallelismAllUnchunkedFamiliesAreOneGraph) {
  const Workload workload = WorkloadOf({.expert_parallel = 4});
  const TaskGraph baseline = Build({.family = Family::kBaseline}, workload);
  for (const Family family : {Family::kBaselineTp, Family::kParmS1, Family::kParmS2, Family::kMontaO1}) {
    EXPECT_TRUE(SameTasks(baseline, Build({.family = family}, workload))) << Name(family);
  }
  EXPECT_FALSE(SameTasks(baseline, Build({.family = Family::kMontaO2, .chunks = 2}, workload)));
}

TEST(ScheduleTest, FamiliesThatDoNotFitSayWhy) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 4});
  EXPECT_EQ(FamilyAllowed(Family::kMontaO1, workload).message(),
            "needs expertShardingParallel = tensorParallel, found 1 and 2");
  EXPECT_EQ(FamilyAllowed(Family::kPipeline, workload).code(), StatusCode::kInfeasible);
  EXPECT_EQ(BuildSchedule({.family = Family::kParmS1, .chunks = 2}, workload, kCluster).status().code(),
            StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace moeplan
