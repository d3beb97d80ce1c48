#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "models/plan/build_plan.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/schedules.h"
#include "models/schedule/streams.h"
#include "models/text.h"
#include "models/timeline/timeline.h"
#include "planner/gradients/place_gradients.h"
#include "planner/search/plan_layer.h"
#include "tests/models/hand_made_graph.h"
#include "tests/planner/by_hand.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// 8 ranks on nodes of 2: MP 2 inside a node, EP 4 and the 4 replicas of dense layers between nodes.
constexpr Layer kLayer = {.batch = 1,
                          .sequence_length = 64,
                          .model_dim = 8,
                          .hidden_dim = 16,
                          .experts = 4,
                          .top_k = 2,
                          .capacity_factor = 1.0};
constexpr Layout kLayout = {.tensor_parallel = 2, .expert_parallel = 4, .data_parallel = 4};
constexpr GroupShape kReplicas = {4, 1}, kExperts = {4, 2}, kTensor = {2, 2};
constexpr int kGpus = 2;

Workload WithGradients(double bytes, double min_chunk_bytes = 2) {
  return {.layer = kLayer,
          .layout = kLayout,
          .min_chunk_bytes = min_chunk_bytes,
          .phase = Phase::kBackward,
          .gradient_bytes = bytes};
}

// An all-reduce takes 1 s and 1 s a byte, an all-to-all and an all-gather 1 s a byte, experts 1 s a flop.
Profile PlainProfile() {
  Profile profile;
  profile.collectives = {Line(Over(Collective::kAllReduce, kReplicas), 1, 1),
                         Line(Over(Collective::kAllToAll, kExperts), 0, 1),
                         Line(Over(Collective::kAllGather, kTensor), 0, 1)};
  profile.kernels = {Line(Kernel::kExpertGemm, 0, 1), Line(Kernel::kDeviceCopy, 0, 1)};
  return profile;
}

PlacedGradients Placed(const TaskGraph& graph, const Profile& profile, const Workload& workload) {
  const auto placed = PlaceGradients(graph, PriceGraph(graph, profile), workload, profile);
  EXPECT_TRUE(placed.ok()) << placed.status().message();
  return placed.ok() ? *placed : PlacedGradients{};
}

// All-to-all 0–2, experts 2–12, all-to-all 12–14: the stream between nodes is idle for ten seconds.
HandMadeGraph OneGap() {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  const TaskId dispatch = graph.AllToAll(Group::kExpert, 2);
  const TaskId expert = graph.Expert(10, {dispatch});
  graph.AllToAll(Group::kExpert, 2, {expert});
  return graph;
}

TEST(PlaceGradientsTest, WhatFitsIntoTheGapIsHiddenAndTheRestComesAfterTheLastCollective) {
  // Ten seconds hold 1 + 8 (8 bytes; 10 would take 11). The other 12 of 20 bytes take 13 s after 14.
  const PlacedGradients placed = Placed(OneGap().graph(), PlainProfile(), WithGradients(20));
  EXPECT_THAT(placed.exchange.slices, ElementsAre(GradientSlice{"ALL_TO_ALL.0", "ALL_TO_ALL.2", 2, 11, 8},
                                                  GradientSlice{"ALL_TO_ALL.2", "", 14, 27, 12}));
  EXPECT_EQ(placed.exchange.hidden_s, 9);
  EXPECT_EQ(placed.exchange.exposed_s, 13);
  EXPECT_EQ(Play(placed.graph, placed.prices.tasks).total_s, 27);
}

TEST(PlaceGradientsTest, WhatFitsWholeIsNotCut) {
  const PlacedGradients placed = Placed(OneGap().graph(), PlainProfile(), WithGradients(8));
  EXPECT_THAT(placed.exchange.slices, ElementsAre(GradientSlice{"ALL_TO_ALL.0", "ALL_TO_ALL.2", 2, 11, 8}));
  EXPECT_EQ(placed.exchange.exposed_s, 0);
}

TEST(PlaceGradientsTest, TheRoomiestGapsAreFilledFirst) {
  // All-to-alls 0–2, 6–8 and 18–20 with experts between: gaps of 4 and 10 seconds, which hold 2 and 8 bytes.
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  TaskId last = graph.AllToAll(Group::kExpert, 2);
  for (const double flops : {4, 10}) last = graph.AllToAll(Group::kExpert, 2, {graph.Expert(flops, {last})});
  EXPECT_THAT(Placed(graph.graph(), PlainProfile(), WithGradients(8)).exchange.slices,
              ElementsAre(GradientSlice{"ALL_TO_ALL.2", "ALL_TO_ALL.4", 8, 17, 8}));
  EXPECT_THAT(Placed(graph.graph(), PlainProfile(), WithGradients(10)).exchange.slices,
              ElementsAre(GradientSlice{"ALL_TO_ALL.0", "ALL_TO_ALL.2", 2, 5, 2},
                          GradientSlice{"ALL_TO_ALL.2", "ALL_TO_ALL.4", 8, 17, 8}));
}

TEST(PlaceGradientsTest, NoPieceIsSmallerThanTheSmallestChunk) {
  // 8 of 12 bytes would fit, and leave 4; with at least 6 a piece, 6 go there and 6 come after.
  const PlacedGradients placed = Placed(OneGap().graph(), PlainProfile(), WithGradients(12, /*min_chunk_bytes=*/5));
  ASSERT_THAT(placed.exchange.slices, SizeIs(2));
  EXPECT_EQ(placed.exchange.slices[0].bytes, 6);
  EXPECT_EQ(placed.exchange.slices[1].bytes, 6);
  // 10 bytes cannot be cut in two such pieces, and do not fit whole.
  const PlacedGradients whole = Placed(OneGap().graph(), PlainProfile(), WithGradients(10, /*min_chunk_bytes=*/5));
  EXPECT_THAT(whole.exchange.slices, ElementsAre(GradientSlice{"ALL_TO_ALL.2", "", 14, 25, 10}));
}

TEST(PlaceGradientsTest, TheSliceTakesAsLongAsContentionLetsItAndNoLongerThanTheGap) {
  // Beside experts an all-reduce takes twice as long: ten seconds hold 2·(1 + 4).
  Profile profile = PlainProfile();
  profile.collectives.push_back(Line(Over(Collective::kAllReduce, kReplicas, Contention::kWithExpertGemm), 2, 2));
  const PlacedGradients placed = Placed(OneGap().graph(), profile, WithGradients(20));
  ASSERT_THAT(placed.exchange.slices, SizeIs(2));
  EXPECT_EQ(placed.exchange.slices[0].bytes, 4);
  EXPECT_EQ(placed.exchange.slices[0].end_s, 12);
}

TEST(PlaceGradientsTest, ASliceThatWouldSlowExpertsIsNotPlacedBesideThem) {
  Profile profile = PlainProfile();
  KernelModel slowed = Line(Kernel::kExpertGemm, 0, 1.5);
  slowed.key.contention = Contention::kWithAllGather;
  profile.kernels.push_back(slowed);
  const PlacedGradients placed = Placed(OneGap().graph(), profile, WithGradients(20));
  EXPECT_THAT(placed.exchange.slices, ElementsAre(GradientSlice{"ALL_TO_ALL.2", "", 14, 35, 20}));
  EXPECT_EQ(placed.exchange.hidden_s, 0);
  // Unless something else slows them as much: an all-gather inside the node from 4 to 9.
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  const TaskId dispatch = graph.AllToAll(Group::kExpert, 2);
  const TaskId copy = graph.Copy(4);
  const TaskId expert = graph.Expert(10, {dispatch});
  graph.AllGather(Group::kTensor, 5, {copy});
  graph.AllToAll(Group::kExpert, 2, {expert});
  // Experts from 2 on: 2 s of work by 4, 5/1.5 by 9, the rest alone. 5 s hold 1 + 4.
  const PlacedGradients beside = Placed(graph.graph(), profile, WithGradients(20));
  ASSERT_THAT(beside.exchange.slices, SizeIs(2));
  EXPECT_EQ(beside.exchange.slices[0], (GradientSlice{"COPY.1", "ALL_TO_ALL.4", 4, 9, 4}));
}

TEST(PlaceGradientsTest, AForwardPassHidesNothing) {
  // The same ten seconds, in the forward pass; the backward pass is a second of experts.
  HandMadeGraph hand_made = OneGap();
  const TaskId backward = hand_made.Expert(1, {2});
  TaskGraph graph = hand_made.graph();
  graph.first_backward = backward;
  const PlacedGradients placed = Placed(graph, PlainProfile(), WithGradients(20));
  EXPECT_THAT(placed.exchange.slices, ElementsAre(GradientSlice{"ALL_TO_ALL.2", "", 14, 35, 20}));
  EXPECT_EQ(placed.exchange.hidden_s, 1);  // Beside the backward pass.
  EXPECT_EQ(placed.exchange.exposed_s, 20);
  EXPECT_EQ(placed.graph.first_backward, backward);
}

TEST(PlaceGradientsTest, WithoutGradientsOrReplicasTheGraphStaysAsItIs) {
  const TaskGraph graph = OneGap().graph();
  const Profile profile = PlainProfile();
  const GraphPrices prices = PriceGraph(graph, profile);
  const PlacedGradients none = Placed(graph, profile, WithGradients(0));
  EXPECT_EQ(none.graph, graph);
  EXPECT_EQ(none.prices.tasks, prices.tasks);
  EXPECT_EQ(none.exchange, GradientExchange());
  TaskGraph alone = graph;
  alone.layout.data_parallel = 1;
  EXPECT_EQ(Placed(alone, profile, WithGradients(20)).exchange, GradientExchange());
}

TEST(PlaceGradientsTest, AMissingAllReduceIsNamed) {
  Profile profile = PlainProfile();
  profile.collectives.erase(profile.collectives.begin());
  const TaskGraph graph = OneGap().graph();
  const auto placed = PlaceGradients(graph, PriceGraph(graph, profile), WithGradients(20), profile);
  EXPECT_EQ(placed.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(placed.status().message(), HasSubstr("the profile lacks ALL_REDUCE groupSize 4 ranksPerNode 1"));
}

TEST(PlaceGradientsTest, SlicesAreLimitedLikeEveryOtherCollective) {
  HandMadeGraph limited = OneGap();
  limited.LimitCtas(8);
  Profile profile = PlainProfile();
  KernelModel slowed = Line(Kernel::kExpertGemm, 0, 1.5);
  slowed.key.contention = Contention::kWithAllGather;
  profile.kernels.push_back(slowed);
  CollectiveModel all_to_all = Line(Over(Collective::kAllToAll, kExperts), 0, 1);
  all_to_all.key.ctas = 8;
  profile.collectives.push_back(all_to_all);
  const auto missing =
      PlaceGradients(limited.graph(), PriceGraph(limited.graph(), profile), WithGradients(20), profile);
  EXPECT_THAT(missing.status().message(), HasSubstr("the profile lacks ALL_REDUCE groupSize 4 ranksPerNode 1 ctas 8;"));
  // Beside 8 CTAs experts are as fast as alone, so there is a gap of 10 s; a slice starts up in 2 s.
  CollectiveModel all_reduce = Line(Over(Collective::kAllReduce, kReplicas), 2, 1);
  all_reduce.key.ctas = 8;
  profile.collectives.push_back(all_reduce);
  slowed = Line(Kernel::kExpertGemm, 0, 1);
  slowed.key.contention = Contention::kWithAllGather;
  slowed.key.ctas = 8;
  profile.kernels.push_back(slowed);
  const PlacedGradients placed = Placed(limited.graph(), profile, WithGradients(20));
  ASSERT_THAT(placed.exchange.slices, SizeIs(2));
  EXPECT_EQ(placed.exchange.slices[0], (GradientSlice{"ALL_TO_ALL.0", "ALL_TO_ALL.2", 2, 12, 8}));
  EXPECT_EQ(placed.exchange.slices[1], (GradientSlice{"ALL_TO_ALL.2", "", 14, 28, 12}));
}

// ---- On random graphs and costs, on a grid of halves so that sums are exact.

struct RandomCase {
  TaskGraph graph;
  Profile profile;
  Workload workload;
};

template <typename Entry>
void AddContended(std::mt19937_64& random, Entry entry, double alpha_s, double beta_s, std::vector<Entry>& entries) {
  for (const Contention contention :
       {Contention::kWithAllToAll, Contention::kWithAllGather, Contention::kWithExpertGemm, Contention::kWithCopy}) {
    constexpr double kSlowdowns[] = {1, 1, 1.5, 2};
    if (random() % 2 == 0) continue;
    const double slowdown = kSlowdowns[random() % 4];
    entry.key.contention = contention;
    entry.model = MakeCostModel(AlphaBeta{alpha_s * slowdown, beta_s * slowdown});
    entries.push_back(entry);
  }
}

RandomCase MakeRandomCase(std::mt19937_64& random, int tasks, int gpus_per_node, double bytes, double least) {
  RandomCase made;
  const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  HandMadeGraph graph(kLayer, kLayout, gpus_per_node);
  const auto shape = [&](Group group) { return ShapeOf(group, kLayout, gpus_per_node); };
  made.profile.collectives = {Line(Over(Collective::kAllReduce, shape(Group::kDenseReplicas)), below(3) * 0.5, 0.5),
                              Line(Over(Collective::kAllToAll, shape(Group::kExpert)), 0, 0.5),
                              Line(Over(Collective::kAllGather, shape(Group::kTensor)), 0, 0.5)};
  made.profile.kernels = {Line(Kernel::kExpertGemm, 0, 0.5), Line(Kernel::kDeviceCopy, 0, 0.5)};
  for (const CollectiveModel& entry : std::vector(made.profile.collectives)) {
    const auto& line = std::get<AlphaBeta>(entry.model.curve);
    AddContended(random, entry, line.alpha_s, line.beta_s_per_unit, made.profile.collectives);
  }
  for (const KernelModel& entry : std::vector(made.profile.kernels)) {
    AddContended(random, entry, 0, 0.5, made.profile.kernels);
  }
  for (TaskId id = 0; id < tasks; ++id) {
    std::vector<TaskId> after;
    for (TaskId before = 0; before < id; ++before) {
      if (below(4) == 0) after.push_back(before);
    }
    const double size = below(7);  // 0: free.
    switch (below(4)) {
      case 0: graph.AllToAll(Group::kExpert, size, after); break;
      case 1: graph.AllGather(Group::kTensor, size, after); break;
      case 2: graph.Copy(size, after); break;
      default: graph.Expert(2 * size, after);
    }
  }
  made.graph = graph.graph();
  made.graph.first_backward = below(3) == 0 ? below(tasks) : 0;
  made.workload = WithGradients(bytes, least);
  return made;
}

bool IsSlice(const Task& task) { return task.name.starts_with("dense_gradients."); }

// Start and end of each task that is no slice, in order.
struct LayerTimes {
  std::vector<double> start_s, end_s;
};
LayerTimes TimesOfLayer(const TaskGraph& graph, const PlayedGraph& played) {
  LayerTimes times;
  for (size_t task = 0; task < graph.tasks.size(); ++task) {
    if (IsSlice(graph.tasks[task])) continue;
    times.start_s.push_back(played.start_s[task]);
    times.end_s.push_back(played.end_s[task]);
  }
  return times;
}

TEST(PlaceGradientsTest, NoTaskEverEndsLaterAndAllBytesAreThere) {
  std::mt19937_64 random(TestSeed());
  int hidden = 0, contended = 0;
  for (int i = 0; i < 5000 && !HasFailure(); ++i) {
    const double bytes = 2.0 * (1 + static_cast<double>(random() % 40)), least = 1 + static_cast<double>(random() % 6);
    const RandomCase given =
        MakeRandomCase(random, 1 + static_cast<int>(random() % 24), random() % 2 == 0 ? 2 : 8, bytes, least);
    SCOPED_TRACE(StrCat("case ", i));
    const GraphPrices prices = PriceGraph(given.graph, given.profile);
    const PlayedGraph before = Play(given.graph, prices.tasks);
    const PlacedGradients placed = Placed(given.graph, given.profile, given.workload);
    const PlayedGraph after = Play(placed.graph, placed.prices.tasks);
    EXPECT_EQ(TimesOfLayer(placed.graph, after).start_s, before.start_s);
    EXPECT_EQ(TimesOfLayer(placed.graph, after).end_s, before.end_s);
    double forward_s = 0;
    for (TaskId task = 0; task < given.graph.first_backward; ++task) {
      forward_s = std::max(forward_s, before.end_s[task]);
    }
    double sum = 0, run_s = 0, last_s = before.total_s;
    for (const GradientSlice& slice : placed.exchange.slices) {
      sum += slice.bytes;
      run_s += slice.end_s - slice.start_s;
      last_s = std::max(last_s, slice.end_s);
      EXPECT_GE(slice.start_s, forward_s);
      EXPECT_TRUE(slice.bytes >= least || placed.exchange.slices.size() == 1) << slice.bytes;
    }
    EXPECT_EQ(sum, bytes);
    EXPECT_NEAR(placed.exchange.exposed_s, last_s - before.total_s, 1e-9);
    EXPECT_NEAR(placed.exchange.hidden_s, run_s - placed.exchange.exposed_s, 1e-9);
    EXPECT_EQ(after.total_s, last_s);
    hidden += placed.exchange.slices.size() > 1 ? 1 : 0;
    for (size_t task = 0, slice = 0; task < placed.graph.tasks.size(); ++task) {
      if (!IsSlice(placed.graph.tasks[task])) continue;
      const GradientSlice& one = placed.exchange.slices[slice++];
      contended += one.end_s - one.start_s > placed.prices.tasks[task].time_s ? 1 : 0;
    }
  }
  EXPECT_GT(hidden, 500) << "the cases should leave gaps";
  EXPECT_GT(contended, 500) << "and slow slices down";
}

// Every way to put up to three slices of whole elements anywhere: the least time exposed when all tasks of the layer
// keep their starts and ends, and when they only end no later.
class BruteForce {
 public:
  explicit BruteForce(const RandomCase& given)
      : given_(given), stream_(StreamOf(Group::kDenseReplicas, kLayout, given.graph.gpus_per_node)) {
    const GraphPrices prices = PriceGraph(given.graph, given.profile);
    before_ = Play(given.graph, prices.tasks);
    for (TaskId task = given.graph.first_backward; task < static_cast<TaskId>(given.graph.tasks.size()); ++task) {
      if (given.graph.tasks[task].stream == stream_) places_.push_back(task);
    }
    places_.push_back(static_cast<TaskId>(given.graph.tasks.size()));
  }

  void Run() { Try(0, given_.workload.gradient_bytes); }
  double exposed_s() const { return exposed_s_; }
  double exposed_if_no_later_s() const { return exposed_if_no_later_s_; }

 private:
  void Try(size_t first_place, double left) {
    if (left == 0) return Judge();
    if (slices_.size() == 3) return;
    constexpr double kElement = 2;
    for (size_t place = first_place; place < places_.size(); ++place) {
      const TaskId before = places_[place];
      for (TaskId after = -1; after < before; ++after) {
        for (double bytes = kElement; bytes <= left; bytes += kElement) {
          const bool whole = bytes == given_.workload.gradient_bytes;
          if (bytes < given_.workload.min_chunk_bytes && !whole) continue;
          slices_.push_back({.after_task = after < 0 ? "" : given_.graph.tasks[after].name,
                             .before_task = place + 1 == places_.size() ? "" : given_.graph.tasks[before].name,
                             .bytes = bytes});
          Try(place, left - bytes);
          slices_.pop_back();
        }
      }
    }
  }

  void Judge() {
    const TaskGraph graph = *WithGradientSlices(given_.graph, slices_);
    const std::vector<TaskPrice> prices = PriceGraph(graph, given_.profile).tasks;
    const PlayedGraph played = Play(graph, prices);
    const LayerTimes times = TimesOfLayer(graph, played);
    for (size_t task = 0; task < times.end_s.size(); ++task) {
      if (times.end_s[task] > before_.end_s[task]) return;
    }
    for (size_t task = 0; task < graph.tasks.size(); ++task) {
      if (!IsSlice(graph.tasks[task])) continue;
      for (TaskId forward = 0; forward < given_.graph.first_backward; ++forward) {
        if (played.start_s[task] < before_.end_s[forward]) return;
      }
    }
    const double exposed_s = played.total_s - before_.total_s;
    exposed_if_no_later_s_ = std::min(exposed_if_no_later_s_, exposed_s);
    if (times.start_s == before_.start_s && times.end_s == before_.end_s) exposed_s_ = std::min(exposed_s_, exposed_s);
  }

  const RandomCase& given_;
  const StreamKind stream_;
  PlayedGraph before_;
  std::vector<TaskId> places_;
  std::vector<GradientSlice> slices_;
  double exposed_s_ = std::numeric_limits<double>::infinity();
  double exposed_if_no_later_s_ = std::numeric_limits<double>::infinity();
};

TEST(PlaceGradientsTest, NoOtherPlacingOfThreeSlicesLeavesLessExposed) {
  std::mt19937_64 random(TestSeed());
  int hidden = 0, beaten = 0;
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const double bytes = 2.0 * (1 + static_cast<double>(random() % 3));
    const RandomCase given =
        MakeRandomCase(random, 2 + static_cast<int>(random() % 6), random() % 2 == 0 ? 2 : 8, bytes, /*least=*/2);
    SCOPED_TRACE(StrCat("case ", i));
    const PlacedGradients placed = Placed(given.graph, given.profile, given.workload);
    BruteForce brute_force(given);
    brute_force.Run();
    EXPECT_NEAR(placed.exchange.exposed_s, brute_force.exposed_s(), 1e-9);
    beaten += brute_force.exposed_if_no_later_s() < placed.exchange.exposed_s - 1e-9 ? 1 : 0;
    hidden += placed.exchange.slices.front().before_task.empty() ? 0 : 1;
  }
  EXPECT_GT(hidden, 100);
  // Two tasks that slow each other may both end as before when a slice puts one of them off.
  EXPECT_LT(beaten, 15);
  std::printf("%d hidden, %d beaten by placings that move tasks\n", hidden, beaten);
}

// ---- In the search.

// 4 ranks on two nodes: MP 2 = ESP 2 inside a node, EP 2 and the 2 replicas of dense layers between nodes.
Workload SmallWorkload() {
  Workload workload;
  workload.layer = {.batch = 4,
                    .sequence_length = 512,
                    .model_dim = 256,
                    .hidden_dim = 512,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 131072;
  workload.phase = Phase::kBackward;
  return workload;
}

Profile SmallProfile() {
  Profile profile;
  profile.cluster = {.nodes = 2, .gpus_per_node = 2};
  profile.collectives = {
      Line(Over(Collective::kAllToAll, {2, 1}), 2e-5, 1e-9),
      Line(Over(Collective::kAllToAll, {4, 2}), 3e-5, 1e-9),
      Line(Over(Collective::kAllGather, {2, 2}), 1e-5, 2.5e-10),
      Line(Over(Collective::kReduceScatter, {2, 2}), 1e-5, 2.5e-10),
      Line(Over(Collective::kAllReduce, {2, 2}), 1e-5, 5e-10),
      Line(Over(Collective::kAllReduce, {2, 1}), 2e-5, 1e-9),
      Line(OverlappedGather({4, 2}, /*gather_group_size=*/2, /*shards=*/2), 3e-5, 1.1e-9),
  };
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 1e-13), Line(Kernel::kGate, 5e-6, 1e-11),
                     Line(Kernel::kPermute, 5e-6, 1e-11), Line(Kernel::kDeviceCopy, 5e-6, 1e-11)};
  return profile;
}

PlanAnswer Answer(const Workload& workload, const Profile& profile) {
  const auto answer = PlanLayer(workload, profile);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : PlanAnswer{};
}

const Plan* WithKnobs(const PlanAnswer& answer, const Knobs& knobs) {
  const auto found = std::ranges::find(answer.candidates, knobs, &Plan::knobs);
  return found == answer.candidates.end() ? nullptr : &*found;
}

TEST(PlanLayerGradientsTest, CandidatesEndWithTheirGradientsAndTheLayerAsWithout) {
  for (const Phase phase : {Phase::kBackward, Phase::kTraining}) {
    Workload workload = SmallWorkload();
    workload.phase = phase;
    const PlanAnswer without = Answer(workload, SmallProfile());
    workload.gradient_bytes = 4 << 20;
    const PlanAnswer with = Answer(workload, SmallProfile());
    EXPECT_TRUE(std::ranges::is_sorted(with.candidates, {}, &Plan::predicted_time_s));
    EXPECT_EQ(with.search.time_floor_s, without.search.time_floor_s);  // That of the layer.
    int compared = 0;
    for (const Plan& plan : with.candidates) {
      const Plan* layer = WithKnobs(without, plan.knobs);
      if (layer == nullptr) continue;  // The fastest chunk count may be another.
      ++compared;
      EXPECT_NEAR(plan.predicted_time_s, layer->predicted_time_s + plan.gradients.exposed_s, 1e-12);
      double bytes = 0;
      for (const GradientSlice& slice : plan.gradients.slices) bytes += slice.bytes;
      EXPECT_EQ(bytes, workload.gradient_bytes);
      std::vector<TaskTiming> slices, others;
      std::ranges::partition_copy(plan.timeline, std::back_inserter(slices), std::back_inserter(others),
                                  [](const TaskTiming& one) { return one.task.starts_with("dense_gradients."); });
      EXPECT_EQ(others, layer->timeline);
      ASSERT_EQ(slices.size(), plan.gradients.slices.size());
      for (size_t i = 0; i < slices.size(); ++i) {
        EXPECT_EQ(slices[i].kind, TaskKind::kAllReduce);
        EXPECT_EQ(slices[i].stream, StreamKind::kInterNode);
        EXPECT_EQ(slices[i].start_s, plan.gradients.slices[i].start_s);
        EXPECT_EQ(slices[i].end_s, plan.gradients.slices[i].end_s);
      }
    }
    EXPECT_GT(compared, 10);
    EXPECT_THAT(with.explanation, AllOf(HasSubstr(" Dense gradients are all-reduced in "), HasSubstr(" after it.")));
    EXPECT_THAT(without.explanation, Not(HasSubstr("gradients")));
  }
}

TEST(PlanLayerGradientsTest, WhatIsRunIsWhatWasPriced) {
  Workload workload = SmallWorkload();
  workload.gradient_bytes = 4 << 20;
  const Profile profile = SmallProfile();
  const PlanAnswer answer = Answer(workload, profile);
  for (const Plan& plan : answer.candidates) {
    const auto graph = BuildPlan(plan, answer.workload, profile.cluster);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const TaskGraph part = PartOf(*graph, workload.phase);
    // The plan lists tasks as the schedule does, its graph by start.
    Timeline run = TimelineOf(part, Play(part, PriceGraph(part, profile).tasks)), priced = plan.timeline;
    std::ranges::sort(run, {}, &TaskTiming::task);
    std::ranges::sort(priced, {}, &TaskTiming::task);
    EXPECT_EQ(run, priced);
  }
  Plan cut_off = answer.candidates.front();
  cut_off.gradients.slices.pop_back();
  EXPECT_THAT(BuildPlan(cut_off, answer.workload, profile.cluster).status().message(),
              HasSubstr("bytes in all, expected 4194304"));
}

TEST(PlanLayerGradientsTest, AScheduleThatLeavesGapsCanBecomeTheBest) {
  // Chunks fill the time of the experts with all-to-alls. An all-reduce that takes a while to start then fits nowhere;
  // in the gap of a schedule that is not chunked it does.
  Profile profile = SmallProfile();
  for (CollectiveModel& entry : profile.collectives) {
    if (entry.key == Over(Collective::kAllReduce, {2, 1})) entry = Line(entry.key, 3e-4, 1e-10);
  }
  Workload workload = SmallWorkload();
  const PlanAnswer without = Answer(workload, profile);
  workload.gradient_bytes = 1 << 20;
  const PlanAnswer with = Answer(workload, profile);
  const auto equal = [](const Plan& plan) { return plan.knobs.chunk_shares.empty(); };
  const Plan &alone = *std::ranges::find_if(without.candidates, equal), &best = with.candidates.front();
  EXPECT_NE(best.knobs, alone.knobs);
  ASSERT_NE(WithKnobs(without, best.knobs), nullptr);
  ASSERT_NE(WithKnobs(with, alone.knobs), nullptr);
  EXPECT_GT(WithKnobs(without, best.knobs)->predicted_time_s, alone.predicted_time_s);
  EXPECT_LT(best.predicted_time_s, WithKnobs(with, alone.knobs)->predicted_time_s);
}

TEST(PlanLayerGradientsTest, AForwardPassHasNoGradientsToExchange) {
  Workload workload = SmallWorkload();
  workload.gradient_bytes = 1024;
  workload.phase = Phase::kForward;
  EXPECT_EQ(PlanLayer(workload, SmallProfile()).status().message(),
            "gradientBytes: found 1024, expected 0 in a forward pass, which has no gradients to exchange; set phase to "
            "BACKWARD or TRAINING");
}

}  // namespace
}  // namespace moeplan::planner
