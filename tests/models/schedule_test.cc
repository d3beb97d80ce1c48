#include "models/schedule/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/measurement/candidates.h"
#include "models/schedule/carry.h"
#include "models/timeline/task_cost.h"

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

const Task* Find(const TaskGraph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.tasks, name, &Task::name);
  return found == graph.tasks.end() ? nullptr : &*found;
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

TEST(ScheduleTest, ATokenCrossesOnceToEachNodeThatHasAnyOfItsExperts) {
  const TaskGraph graph = Build({.family = Family::kOncePerNode}, WorkloadOf({.expert_parallel = 4}));
  EXPECT_EQ(SizeOf(graph, "gather_routing"), 2 * 64 * 2 * 12.0);  // Of each pair expert, slot and weight.
  // Two of four experts are both on the one node in a case of six, and both on the other in another.
  const double rows = 64 * (2 - 2.0 / 6), pairs = 2 * 64;
  EXPECT_DOUBLE_EQ(SizeOf(graph, "dispatch_a2a"), rows * 16);
  EXPECT_DOUBLE_EQ(SizeOf(graph, "relay_dispatch"), pairs * 16);
  EXPECT_DOUBLE_EQ(SizeOf(graph, "spread_a2a"), pairs * 16);
  EXPECT_DOUBLE_EQ(SizeOf(graph, "expert"), 2.0 * 2 * pairs * 8 * 16);
  EXPECT_DOUBLE_EQ(SizeOf(graph, "collect_a2a"), pairs * 16);
  EXPECT_DOUBLE_EQ(SizeOf(graph, "combine_a2a"), rows * 16);
  EXPECT_EQ(Find(graph, "dispatch_a2a")->stream, StreamKind::kInterNode);
  EXPECT_EQ(Find(graph, "spread_a2a")->stream, StreamKind::kIntraNode);
  const auto cost_of = [&](const char* task) {
    return std::get<CollectiveKey>(CostOf(*Find(graph, task), graph)->key);
  };
  EXPECT_EQ(cost_of("dispatch_a2a").group, (GroupShape{2, 1}));
  EXPECT_EQ(cost_of("spread_a2a").group, (GroupShape{2, 2}));
  EXPECT_EQ(cost_of("gather_routing").group, (GroupShape{2, 1}));
}

TEST(ScheduleTest, OnlyWhereThereAreSeveralNodesDoesATokenGoOncePerNode) {
  const auto reason = [](const Layout& layout, const Cluster& cluster) {
    Workload workload = WorkloadOf({.expert_parallel = 4});
    workload.layout = layout;
    workload = *ResolveWorkload(workload, cluster);
    return std::string(FamilyAllowed(Family::kOncePerNode, workload, cluster).message());
  };
  constexpr Cluster kOneNode = {.nodes = 1, .gpus_per_node = 4}, kFourNodes = {.nodes = 4, .gpus_per_node = 2};
  EXPECT_EQ(reason({.expert_parallel = 4}, kCluster), "");
  EXPECT_EQ(reason({.expert_parallel = 4}, kOneNode),
            "needs EP&ESP groups on several nodes, found groups of 4 ranks, 4 of them on a node");
  EXPECT_EQ(reason({.expert_parallel = 2, .expert_sharding_parallel = 4}, kFourNodes),
            "needs the 4 shards of an expert on one node, found groups of 8 ranks, 2 of them on a node");
  EXPECT_EQ(reason({.tensor_parallel = 4, .expert_parallel = 4, .expert_sharding_parallel = 2}, kFourNodes),
            "needs tensor-parallel groups inside a node, found tensorParallel 4 on nodes of 2");
  EXPECT_EQ(BuildSchedule({.family = Family::kOncePerNode, .all_to_all = AllToAllAlgorithm::kHier2d},
                          WorkloadOf({.expert_parallel = 4}), kCluster)
                .status()
                .code(),
            StatusCode::kInfeasible);
}

TEST(ScheduleTest, PaddedSlicesTellEachOtherTheirCountsForTheLoadBalanceLossAlone) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.capacity_passing = CapacityPassing::kPadded;
  const auto gathers = [&](Phase phase, double coefficient) {
    workload.phase = phase;
    workload.layer.aux_loss_coefficient = coefficient;
    return Find(Build({.family = Family::kParmS1}, workload), "gather_counts") != nullptr;
  };
  EXPECT_FALSE(gathers(Phase::kForward, 0.01));
  EXPECT_FALSE(gathers(Phase::kTraining, 0));
  EXPECT_TRUE(gathers(Phase::kTraining, 0.01));
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS1}, workload), "gather_counts"), 4 * 4 * 2);  // 4·E·N_MP bytes
  workload.capacity_passing = CapacityPassing::kExact;
  const TaskGraph exact = Build({.family = Family::kParmS1}, workload);
  EXPECT_EQ(std::ranges::count_if(exact.tasks, [](const Task& task) { return task.kind == TaskKind::kAllGather; }), 3)
      << "the counts that pass capacity, the output and the input's gradient";
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

std::vector<std::string> NamesOn(const TaskGraph& graph, StreamKind stream) {
  std::vector<std::string> names;
  for (const Task& task : graph.tasks) {
    if (task.stream == stream) names.push_back(task.name);
  }
  return names;
}

TEST(ScheduleTest, ThePipelineIsLaunchedInTheOrderOfOptSche) {
  const TaskGraph graph =
      Build({.family = Family::kPipeline, .partition_degree = 2}, WorkloadOf({.expert_parallel = 4}));
  EXPECT_EQ(NamesOn(graph, StreamKind::kInterNode),
            (std::vector<std::string>{"dispatch_a2a.1", "dispatch_a2a.2", "combine_a2a.1", "combine_a2a.2"}));
  EXPECT_EQ(NamesOn(graph, StreamKind::kCompute),
            (std::vector<std::string>{"gate", "dispatch.1", "dispatch.2", "expert.1", "expert.2", "combine"}));
}

TEST(ScheduleTest, CodecsOfThePipelineAreLaunchedInTheOrderOfOptSche) {
  // C1.1 C1.2, then D1 E C2 of each partition, then D2.1 D2.2; backward with dX for E, and dW while the last return.
  Workload workload = WorkloadOf({.expert_parallel = 4});
  workload.phase = Phase::kTraining;
  workload.allow_lossy = true;
  const TaskGraph graph = Build(
      {.family = Family::kPipeline, .partition_degree = 2, .dispatch_codec = Codec::kFp8, .combine_codec = Codec::kFp8},
      workload);
  EXPECT_EQ(NamesOn(graph, StreamKind::kCompute), (std::vector<std::string>{"gate",
                                                                            "dispatch.1",
                                                                            "dispatch_a2a_encode.1",
                                                                            "dispatch.2",
                                                                            "dispatch_a2a_encode.2",
                                                                            "dispatch_a2a_decode.1",
                                                                            "expert.1",
                                                                            "combine_a2a_encode.1",
                                                                            "dispatch_a2a_decode.2",
                                                                            "expert.2",
                                                                            "combine_a2a_encode.2",
                                                                            "combine_a2a_decode.1",
                                                                            "combine_a2a_decode.2",
                                                                            "combine",
                                                                            "grad_combine.1",
                                                                            "grad_dispatch_a2a_encode.1",
                                                                            "grad_combine.2",
                                                                            "grad_dispatch_a2a_encode.2",
                                                                            "grad_routing",
                                                                            "grad_dispatch_a2a_decode.1",
                                                                            "grad_expert_input.1",
                                                                            "grad_combine_a2a_encode.1",
                                                                            "grad_dispatch_a2a_decode.2",
                                                                            "grad_expert_input.2",
                                                                            "grad_combine_a2a_encode.2",
                                                                            "grad_expert_weights.1",
                                                                            "grad_expert_weights.2",
                                                                            "grad_combine_a2a_decode.1",
                                                                            "grad_combine_a2a_decode.2",
                                                                            "grad_dispatch",
                                                                            "grad_gate"}));
  EXPECT_EQ(graph.tasks[graph.first_backward].name, "grad_combine.1");
}

TEST(ScheduleTest, PartitionsOfThePipelineMoveAllSlotsAndThoseOfS2TheShareOfARank) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const double y = 2 * 4 * 32 * 16.0;
  EXPECT_EQ(SizeOf(Build({.family = Family::kPipeline, .partition_degree = 4}, workload), "dispatch_a2a.4"), y / 4);
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS2, .partition_degree = 4}, workload), "dispatch_a2a.4"), y / 2 / 4);
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS1, .partition_degree = 4}, workload), "dispatch_a2a.4"), y / 2 / 4);
  EXPECT_EQ(SizeOf(Build({.family = Family::kParmS1, .partition_degree = 4}, workload), "counts_a2a"), 4 * 4 * 2 * 4)
      << "the counts of all partitions go together";
}

TEST(ScheduleTest, UnequalPartitionsMoveTheirShareOfTheSlots) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const TaskGraph graph =
      Build({.family = Family::kParmS2, .partition_degree = 3, .chunk_shares = {0.25, 0.5, 0.25}}, workload);
  const double all_bytes = SizeOf(Build({.family = Family::kParmS2}, workload), "dispatch_a2a");
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a.1"), all_bytes / 4);
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a.2"), all_bytes / 2);
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a.3"), all_bytes / 4);
  EXPECT_EQ(SizeOf(graph, "expert.2"), 2 * SizeOf(graph, "expert.1"));
  EXPECT_EQ(BufferBytes(graph), BufferBytes(Build({.family = Family::kParmS2, .partition_degree = 4}, workload)));
}

TEST(ScheduleTest, SharesThatCannotBeSayWhy) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const auto why = [&](Knobs knobs, std::vector<double> shares) {
    knobs.chunk_shares = std::move(shares);
    return std::string(BuildSchedule(knobs, workload, kCluster).status().message());
  };
  const Knobs two = {.family = Family::kMontaO2, .chunks = 2};
  EXPECT_EQ(why(two, {0.25, 0.5, 0.25}), "chunkShares: found 3 shares, expected 2, one for each chunk");
  EXPECT_EQ(why(two, {0.25, 0.5}), "chunkShares: found a sum of 0.75, expected 1");
  EXPECT_EQ(why(two, {0.123456, 0.876544}),
            "chunkShares: expected multiples of 1/n for one n up to 64, such as 0.25, 0.5 and 0.25");
  EXPECT_EQ(why(two, {1.0 / 17, 16.0 / 17}),
            "chunkShares: found units of 1/17, expected no less than 1/16, which is one slot");
  EXPECT_EQ(why(two, {0.333333, 0.666667}), "");
  EXPECT_EQ(why({.family = Family::kMontaO1}, {1.0}),
            "chunkShares: found shares, expected none, as MONTA_O1 cuts no unequal chunks");
  workload.min_chunk_bytes = 500;
  EXPECT_EQ(why(two, {0.125, 0.875}),
            "chunkShares: found a share of 1/8, expected at least 1/2, as a piece sends minChunkBytes");
}

TEST(ScheduleTest, TheBackwardPassSendsWhatTheForwardPassSentAndComputesTwiceAsMuch) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.phase = Phase::kTraining;
  for (const Family family : Families()) {
    SCOPED_TRACE(Name(family));
    const TaskGraph graph = Build(WithPieces({.family = family}, MaxPieces(family, workload)), workload);
    double all_to_all_bytes[2] = {}, expert_flops[2] = {};
    for (TaskId id = 0; id < static_cast<TaskId>(graph.tasks.size()); ++id) {
      const Task& task = graph.tasks[id];
      const bool backward = id >= graph.first_backward;
      EXPECT_EQ(task.name.starts_with("grad_"), backward) << task.name;
      // Counts and what relays say of weights are no rows.
      const bool rows = !task.name.starts_with("counts") && !task.name.ends_with("routing_a2a");
      if (task.kind == TaskKind::kAllToAll && rows) all_to_all_bytes[backward] += task.size;
      if (task.kind == TaskKind::kExpert) expert_flops[backward] += task.size;
    }
    EXPECT_EQ(all_to_all_bytes[1], all_to_all_bytes[0]);
    EXPECT_EQ(expert_flops[1], 2 * expert_flops[0]);
  }
}

TEST(ScheduleTest, WhatARelayWaitsForComesBehindWhatHasTime) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.layer.shared_hidden_dim = 8;
  workload.phase = Phase::kTraining;
  const TaskGraph graph = Build({.family = Family::kOncePerNode}, workload);
  EXPECT_EQ(
      NamesOn(PartOf(graph, Phase::kForward), StreamKind::kCompute),
      (std::vector<std::string>{"gate", "assign_slots", "split_by_node", "relay_routing", "dispatch", "shared_expert",
                                "relay_dispatch", "expert", "sum_shards", "relay_combine", "combine"}));
  EXPECT_EQ(NamesOn(PartOf(graph, Phase::kBackward), StreamKind::kCompute),
            (std::vector<std::string>{"grad_combine", "grad_shared_input", "grad_relay_combine", "grad_relay_routing",
                                      "grad_sum_routing", "grad_expert_input", "grad_sum_shards", "grad_relay_dispatch",
                                      "grad_expert_weights", "grad_shared_weights", "grad_dispatch", "grad_gate"}));
}

TEST(ScheduleTest, WeightGradientsAreComputedWhileTheLastPiecesReturn) {
  Workload workload = WorkloadOf({.expert_parallel = 4});
  workload.phase = Phase::kBackward;
  const TaskGraph graph = PartOf(Build({.family = Family::kPipeline, .partition_degree = 2}, workload), workload.phase);
  const std::vector<std::string> compute = NamesOn(graph, StreamKind::kCompute);
  EXPECT_EQ(compute, (std::vector<std::string>{"grad_combine.1", "grad_combine.2", "grad_routing",
                                               "grad_expert_input.1", "grad_expert_input.2", "grad_expert_weights.1",
                                               "grad_expert_weights.2", "grad_dispatch", "grad_gate"}));
  for (const Task& task : graph.tasks) {
    for (const TaskId before : task.dependencies)
      EXPECT_FALSE(graph.tasks[before].name.find("weights") != std::string::npos);
  }
}

TEST(ScheduleTest, ThePartOfAPassWaitsForNothingBeforeIt) {
  Workload workload = WorkloadOf({.expert_parallel = 4});
  workload.phase = Phase::kTraining;
  const TaskGraph whole = Build({.family = Family::kPipeline, .partition_degree = 2}, workload);
  const TaskGraph forward = PartOf(whole, Phase::kForward), backward = PartOf(whole, Phase::kBackward);
  EXPECT_EQ(forward.tasks.size() + backward.tasks.size(), whole.tasks.size());
  EXPECT_TRUE(PartOf(whole, Phase::kTraining) == whole);
  EXPECT_EQ(backward.first_backward, 0);
  EXPECT_EQ(forward.first_backward, static_cast<TaskId>(forward.tasks.size()));
  for (size_t i = 0; i < backward.tasks.size(); ++i) {
    for (const TaskId before : backward.tasks[i].dependencies) {
      EXPECT_GE(before, 0);
      EXPECT_EQ(backward.tasks[before].name, whole.tasks[before + whole.first_backward].name);
    }
  }
  EXPECT_TRUE(backward.tasks.front().dependencies.empty());
}

TEST(ScheduleTest, TasksComeAfterWhatTheyDependOn) {
  for (const Layout& layout : {Layout{.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2},
                               Layout{.expert_parallel = 4}, Layout{.tensor_parallel = 4, .expert_parallel = 2}}) {
    const Workload workload = WorkloadOf(layout);
    for (const Family family : Families()) {
      if (!FamilyAllowed(family, workload, kCluster).ok()) continue;
      const TaskGraph graph = Build(WithPieces({.family = family}, MaxPieces(family, workload)), workload);
      for (size_t id = 0; id < graph.tasks.size(); ++id) {
        for (const TaskId before : graph.tasks[id].dependencies) EXPECT_LT(before, static_cast<TaskId>(id));
        // Only the first task, on the input or a gather of it, waits for nothing.
        EXPECT_EQ(graph.tasks[id].dependencies.empty(), id == 0) << graph.tasks[id].name;
      }
    }
  }
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
    EXPECT_EQ(FamilyAllowed(Family::kParmS1, sliced, kCluster).ok(), cuts);
    EXPECT_TRUE(FamilyAllowed(Family::kParmS1, whole, kCluster).ok());
    EXPECT_TRUE(FamilyAllowed(Family::kParmS2, sliced, kCluster).ok());
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

TEST(ScheduleTest, AnAlgorithmIsForTheAllToAllsOfRows) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const TaskGraph graph = Build({.family = Family::kParmS1, .all_to_all = AllToAllAlgorithm::kHier2d}, workload);
  for (const Task& task : graph.tasks) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op == nullptr) continue;
    const bool of_rows = task.name == "dispatch_a2a" || task.name == "combine_a2a";
    EXPECT_EQ(op->algorithm, of_rows ? AllToAllAlgorithm::kHier2d : AllToAllAlgorithm::kDirect) << task.name;
  }
  EXPECT_FALSE(SameTasks(graph, Build({.family = Family::kParmS1}, workload)));
}

TEST(ScheduleTest, AlgorithmsThatDoNotFitSayWhy) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  // EP has one rank on each node, EP&ESP two.
  const auto over_ep =
      BuildSchedule({.family = Family::kMontaO1, .all_to_all = AllToAllAlgorithm::kPipe}, workload, kCluster);
  EXPECT_EQ(over_ep.status(),
            Infeasible("allToAll: PIPE needs a group over several nodes with several ranks on each, found 2 ranks, 1 a "
                       "node"));
  const Knobs overlapped = {
      .family = Family::kParmS2, .all_to_all = AllToAllAlgorithm::kHier1d, .overlapped_gather = true};
  EXPECT_EQ(BuildSchedule(overlapped, workload, kCluster).status().code(), StatusCode::kInfeasible);
}

TEST(ScheduleTest, CtasAreOfTheGraphAndChangeNoTask) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  TaskGraph limited = Build({.family = Family::kParmS1, .communication_ctas = 8}, workload);
  const TaskGraph unlimited = Build({.family = Family::kParmS1}, workload);
  EXPECT_EQ(limited.communication_ctas, 8);
  EXPECT_FALSE(SameTasks(limited, unlimited));
  limited.communication_ctas = 0;
  EXPECT_EQ(limited, unlimited);
  for (const int wrong : {-1, kMostCtas + 1}) {
    EXPECT_EQ(BuildSchedule({.family = Family::kParmS1, .communication_ctas = wrong}, workload, kCluster).status(),
              InvalidInput("communicationCtas: found " + std::to_string(wrong) + ", expected 0 to 1024"));
  }
}

TEST(ScheduleTest, ScratchOnTheWayIsMemory) {
  // S2 without shards: 4 ranks on 2 nodes; a block is one expert's T / N_MP slots of 16 bytes. HIER_2D holds the 2
  // blocks for its place on the other node, a leader of HIER_1D the 4 that leave its node and the 4 that come.
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 4});
  const double block_bytes = 32 / 2 * 16;
  const auto bytes_with = [&](AllToAllAlgorithm algorithm) {
    return BufferBytes(Build({.family = Family::kParmS2, .all_to_all = algorithm}, workload));
  };
  const double direct_bytes = bytes_with(AllToAllAlgorithm::kDirect);
  EXPECT_EQ(bytes_with(AllToAllAlgorithm::kPipe), direct_bytes);
  EXPECT_EQ(bytes_with(AllToAllAlgorithm::kHier2d), direct_bytes + 2 * block_bytes);
  EXPECT_EQ(bytes_with(AllToAllAlgorithm::kHier1d), direct_bytes + 8 * block_bytes);
  EXPECT_EQ(ScratchBytes(Build({.family = Family::kParmS2, .all_to_all = AllToAllAlgorithm::kHier1d}, workload), 1), 0);
}

TEST(ScheduleTest, CodecsStandOnlyWhereTheyAreAllowedAndDoSomething) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  EXPECT_EQ(CodecAllowed(Codec::kFp8, Family::kParmS1, workload).code(), StatusCode::kInvalidInput) << "not asked for";
  workload.allow_lossy = true;
  EXPECT_TRUE(CodecAllowed(Codec::kFp8, Family::kParmS1, workload).ok());
  EXPECT_EQ(CodecAllowed(Codec::kFp8, Family::kBaseline, workload).code(), StatusCode::kInfeasible);
  EXPECT_EQ(CodecAllowed(Codec::kBf16, Family::kParmS1, workload).code(), StatusCode::kInfeasible) << "BF16 already";
  // NONE and five codecs each way; back alone none where the overlapped gather sums on the way.
  EXPECT_EQ(WithCodecs({.family = Family::kParmS2}, workload).size(), 36U);
  EXPECT_EQ(WithCodecs({.family = Family::kParmS2, .overlapped_gather = true}, workload).size(), 6U);
  // A recipe has the codec that it names, or none.
  Workload recipe = workload;
  recipe.dispatch_codec = Codec::kFp8Blockwise;
  recipe.named_codecs_only = true;
  EXPECT_THAT(WithCodecs({.family = Family::kParmS2}, recipe),
              ::testing::ElementsAre(Knobs{.family = Family::kParmS2},
                                     Knobs{.family = Family::kParmS2, .dispatch_codec = Codec::kFp8Blockwise}));
  EXPECT_EQ(WithCodecs({.family = Family::kBaseline}, workload).size(), 1U);
  const TaskGraph graph = Build({.family = Family::kParmS2, .dispatch_codec = Codec::kInt8}, workload);
  // y / N_MP rows of 8 elements: a scale and eight bytes instead of sixteen.
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), 2 * 4 * 32 / 2 * 12.0);
  EXPECT_EQ(SizeOf(graph, "combine_a2a"), 2 * 4 * 32 / 2 * 16.0);
}

TEST(ScheduleTest, FamiliesThatDoNotFitSayWhy) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 4});
  EXPECT_EQ(FamilyAllowed(Family::kMontaO1, workload, kCluster).message(),
            "needs expertShardingParallel = tensorParallel, found 1 and 2");
  EXPECT_EQ(BuildSchedule({.family = Family::kParmS1, .chunks = 2}, workload, kCluster).status().code(),
            StatusCode::kInvalidInput);
}

// Every variant, with every pair of codecs and a limit on CTAs.
std::vector<Knobs> EveryCarriage(const Workload& workload) {
  std::vector<Knobs> every;
  for (const Family family : Families()) {
    if (!FamilyAllowed(family, workload, kCluster).ok()) continue;
    for (const Knobs& variant : VariantsOf(family, workload.layout, kCluster.gpus_per_node)) {
      for (Knobs knobs : WithCodecs(variant, workload)) {
        knobs.communication_ctas = every.size() % 3 == 0 ? 8 : 0;
        for (const int pieces : {1, 2}) {
          if (pieces <= MaxPieces(family, workload)) every.push_back(WithPieces(knobs, pieces));
        }
      }
    }
  }
  return every;
}

TEST(CarryTest, TurnsTheGraphOfOneCarriageIntoThatOfAnother) {
  int turned = 0, apart = 0;
  for (const Layout& layout : {Layout{.expert_parallel = 4}, Layout{.tensor_parallel = 2, .expert_parallel = 2},
                               Layout{.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2}}) {
    for (const CapacityPassing passing : {CapacityPassing::kExact, CapacityPassing::kPadded}) {
      for (const Phase phase : {Phase::kForward, Phase::kTraining}) {
        Workload workload = WorkloadOf(layout);
        workload.layer.bytes_per_element = 4;
        workload.allow_lossy = true;
        workload.phase = phase;
        workload.capacity_passing = passing;
        const std::vector<Knobs> every = EveryCarriage(workload);
        for (size_t i = 0; i < every.size(); i += 5) {
          const TaskGraph drawn = Build(every[i], workload);
          for (const Knobs& knobs : every) {
            if (!DifferInCarriageAlone(every[i], knobs)) {
              ++apart;
              continue;
            }
            TaskGraph carried = drawn;
            Carry(knobs, carried);
            ASSERT_TRUE(carried == Build(knobs, workload)) << Name(knobs.family);
            ++turned;
          }
        }
      }
    }
  }
  EXPECT_GT(turned, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(CarryTest, RowsGoByTheAlgorithmAndCountsDirectly) {
  const Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  const TaskGraph graph = Build({.family = Family::kParmS1, .all_to_all = AllToAllAlgorithm::kHier2d}, workload);
  const auto algorithm_of = [&](const char* task) { return std::get<CollectiveOp>(Find(graph, task)->op).algorithm; };
  EXPECT_EQ(algorithm_of("dispatch_a2a"), AllToAllAlgorithm::kHier2d);
  EXPECT_EQ(algorithm_of("combine_a2a"), AllToAllAlgorithm::kHier2d);
  EXPECT_EQ(algorithm_of("counts_a2a"), AllToAllAlgorithm::kDirect);
}

TEST(CarryTest, AnotherCodecSendsOtherBytes) {
  Workload workload = WorkloadOf({.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2});
  workload.allow_lossy = true;
  TaskGraph graph =
      Build({.family = Family::kParmS2, .dispatch_codec = Codec::kFp8, .combine_codec = Codec::kZfp}, workload);
  const double rows = 2 * 4 * 16;  // Of 8 elements: a scale and 8 bytes in FP8 and INT8, 4 bytes a block of 4 in ZFP.
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), rows * 12);
  EXPECT_EQ(SizeOf(graph, "combine_a2a"), rows * 8);
  Carry({.family = Family::kParmS2, .dispatch_codec = Codec::kZfp, .combine_codec = Codec::kInt8}, graph);
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), rows * 8);
  EXPECT_EQ(SizeOf(graph, "combine_a2a"), rows * 12);
}

}  // namespace
}  // namespace moeplan
