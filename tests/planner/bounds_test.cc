// What the joint search leaves out cannot be the best: its bounds and its answer against plain enumeration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "models/measurement/candidates.h"
#include "models/measurement/needs.h"
#include "models/schedule/chunk_units.h"
#include "models/schedule/launch_order.h"
#include "models/schedule/schedules.h"
#include "models/timeline/timeline.h"
#include "planner/search/overlap_floor.h"
#include "planner/search/plan_layer.h"
#include "planner/search/task_order.h"
#include "planner/search/unequal_chunks.h"
#include "tests/models/hand_made_graph.h"
#include "tests/planner/by_hand.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

constexpr double kRounding = 1e-9;
constexpr int kCases = 100;
constexpr Cluster kTwoByTwo = {.nodes = 2, .gpus_per_node = 2};

int AnyOf(std::mt19937_64& engine, std::initializer_list<int> values) {
  return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(engine)];
}

Workload AnyWorkload(std::mt19937_64& engine) {
  Workload workload;
  workload.layer = {.batch = AnyOf(engine, {1, 2, 4}),
                    .sequence_length = AnyOf(engine, {96, 256, 512}),
                    .model_dim = AnyOf(engine, {64, 256}),
                    .hidden_dim = 256,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = AnyOf(engine, {1, 2}) * 0.75};
  workload.layout = {.tensor_parallel = AnyOf(engine, {1, 2}), .expert_parallel = 2};
  workload.layout.expert_sharding_parallel = AnyOf(engine, {1, 2});
  workload.min_chunk_bytes = 1024;
  workload.max_chunks = 4;
  workload.max_partition_degree = 4;
  workload.allow_lossy = true;
  workload.phase = static_cast<Phase>(AnyOf(engine, {0, 1, 2}));
  return Resolved(workload, kTwoByTwo);
}

// A curve with a dent for everything that the search can ask.
Profile AnyProfile(std::mt19937_64& engine, const Workload& workload) {
  Profile profile{.cluster = kTwoByTwo};
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({workload}, profile.cluster)) keys.insert(need.key);
  const auto around = [&](double value) { return value * std::exp(std::uniform_real_distribution(-1.5, 1.5)(engine)); };
  for (const CostKey& key : keys) {
    const auto* kernel = std::get_if<KernelKey>(&key);
    const bool flops = kernel != nullptr && CountsFlops(kernel->kernel);
    const double start_s = around(1e-5), s_per_unit = around(flops ? 1e-13 : 1e-10);
    LogLog curve;
    for (double size = 1024; size < 1e10; size *= 8) {
      curve.points.push_back({size, (start_s + s_per_unit * size) * std::uniform_real_distribution(0.7, 1.3)(engine)});
    }
    if (kernel != nullptr) profile.kernels.push_back({*kernel, MakeCostModel(curve)});
    if (const auto* one = std::get_if<CollectiveKey>(&key)) profile.collectives.push_back({*one, MakeCostModel(curve)});
  }
  return profile;
}

constexpr int kLimits[] = {4, 16};

// With entries of limited CTAs: collectives a little slower, most of them there, and what they slow down, less.
Profile WithLimits(std::mt19937_64& engine, Profile profile) {
  const auto scaled = [&](auto entry, int ctas, double low, double high) {
    entry.key.ctas = ctas;
    const double factor = std::uniform_real_distribution(low, high)(engine);
    for (TimePoint& point : std::get<LogLog>(entry.model.curve).points) point.time_s *= factor;
    return entry;
  };
  const Profile unlimited = profile;
  for (const int ctas : kLimits) {
    const bool all = std::bernoulli_distribution(0.8)(engine);
    for (const CollectiveModel& entry : unlimited.collectives) {
      if (!all && std::bernoulli_distribution(0.2)(engine)) continue;
      profile.collectives.push_back(scaled(entry, ctas, 0.95, 1.3));
    }
    for (const KernelModel& entry : unlimited.kernels) {
      if (!IsCommunication(entry.key.contention) || std::bernoulli_distribution(0.3)(engine)) continue;
      profile.kernels.push_back(scaled(entry, ctas, 0.3, 1));
    }
  }
  return profile;
}

TaskGraph GraphOf(const Knobs& knobs, const Workload& workload) {
  StatusOr<TaskGraph> graph = BuildSchedule(knobs, workload, kTwoByTwo);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return PartOf(*std::move(graph), workload.phase);
}

std::vector<Knobs> EveryVariant(const Workload& workload) {
  std::vector<Knobs> every;
  for (const Family family : Families()) {
    if (!FamilyAllowed(family, workload, kTwoByTwo).ok()) continue;
    for (const Knobs& variant : VariantsOf(family, workload.layout, kTwoByTwo.gpus_per_node)) {
      for (const Knobs& coded : WithCodecs(variant, workload)) every.push_back(coded);
    }
  }
  return every;
}

// Any launch order of a forward graph, or of a training graph's two passes one after the other.
TaskGraph InAnyOrder(const TaskGraph& graph, std::mt19937_64& engine) {
  std::vector<TaskId> order;
  std::vector<bool> launched(graph.tasks.size(), false);
  while (order.size() < graph.tasks.size()) {
    std::vector<TaskId> ready;
    const bool backward = static_cast<TaskId>(order.size()) >= graph.first_backward;
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
      const auto& needs = graph.tasks[task].dependencies;
      const bool may = !launched[task] && (task >= graph.first_backward) == backward &&
                       std::ranges::all_of(needs, [&](TaskId before) { return launched[before]; });
      if (may) ready.push_back(task);
    }
    order.push_back(ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(engine)]);
    launched[order.back()] = true;
  }
  return Relaunched(graph, order);
}

TEST(BoundsTest, NoNumberOfPiecesEndsBeforeTheBoundOfOne) {
  std::mt19937_64 engine(TestSeed());
  double closest = 0;
  for (int i = 0; i < kCases; ++i) {
    const Workload workload = AnyWorkload(engine);
    const Profile profile = AnyProfile(engine, workload);
    CostIndex index(profile);
    for (const Knobs& variant : EveryVariant(workload)) {
      const TaskGraph whole = GraphOf(WithPieces(variant, 1), workload);
      for (int pieces = 1; pieces <= MaxPieces(variant.family, workload); ++pieces) {
        const TaskGraph graph = GraphOf(WithPieces(variant, pieces), workload);
        const GraphPrices prices = PriceGraph(graph, profile);
        ASSERT_THAT(prices.missing, ::testing::IsEmpty());
        const double time_s = Play(graph, prices.tasks).total_s;
        const double bound_s = WorkInPiecesAtLeastS(StreamCosts(whole), index, pieces);
        ASSERT_LE(bound_s, time_s * (1 + kRounding)) << Name(variant.family) << " in " << pieces;
        closest = std::max(closest, bound_s / time_s);
      }
    }
  }
  EXPECT_GT(closest, 0.8) << "a bound that is never near says nothing";
}

// n units take n² seconds, so pieces are cheaper than the whole, and their bound is the time that they take.
TEST(BoundsTest, OfPiecesThatAreCheaperThanTheWholeBoundsAreWhatTheyTake) {
  const KernelKey square = {.kernel = Kernel::kExpertGemm}, line = {.kernel = Kernel::kGate};
  Profile profile{.cluster = kTwoByTwo};
  profile.kernels = {{square, MakeCostModel(LogLog{{{1.0 / 8, 1.0 / 64}, {8, 64}}})},
                     {line, MakeCostModel(AlphaBeta{0, 1})}};
  CostIndex index(profile);
  constexpr double kShaved = 1e-7;  // What bounds leave for rounding.
  const std::vector<StreamCost> eight = {{{square, 8}, StreamKind::kCompute}};
  EXPECT_NEAR(WorkInPiecesAtLeastS(eight, index, 1), 64, 64 * kShaved);
  EXPECT_NEAR(WorkInPiecesAtLeastS(eight, index, 2), 2 * 4 * 4, 32 * kShaved);
  EXPECT_NEAR(WorkInPiecesAtLeastS(eight, index, 4), 4 * 2 * 2, 16 * kShaved);
  // Two and four divide eight eighths evenly. Three pieces are at best 3, 3 and 2, which take more than thirds.
  EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(eight, index, 2, 8), 2 * 4 * 4, 32 * kShaved);
  EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(eight, index, 4, 8), 4 * 2 * 2, 16 * kShaved);
  EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(eight, index, 3, 8), 3 * 3 + 3 * 3 + 2 * 2, 22 * kShaved);
  EXPECT_NEAR(WorkInPiecesAtLeastS(eight, index, 3), 3 * (8.0 / 3) * (8.0 / 3), 22 * kShaved);

  // One stream takes 16 s and 10 s in four pieces, the other 25 s; the busier one is the bound.
  std::vector<StreamCost> several = eight;
  several.push_back({{line, 10}, StreamKind::kCompute});
  several.push_back({{line, 25}, StreamKind::kInterNode});
  EXPECT_NEAR(WorkInPiecesAtLeastS(several, index, 4), 16 + 10, 26 * kShaved);
  EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(several, index, 4, 8), 16 + 10, 26 * kShaved);
  several.back().cost.size = 27;
  EXPECT_NEAR(WorkInPiecesAtLeastS(several, index, 4), 27, 27 * kShaved);
  EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(several, index, 4, 8), 27, 27 * kShaved);
}

// A bound that is a little too high would be above the time of this.
TEST(BoundsTest, EveryBoundIsReachedWhereOneKernelTakesAllTheTime) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 512,
                    .model_dim = 64,
                    .hidden_dim = 256,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1};  // 256 slots for an expert: eighths of halves are whole.
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 64;
  workload.max_chunks = workload.max_partition_degree = 4;
  workload = Resolved(workload, kTwoByTwo);
  Profile profile{.cluster = kTwoByTwo};
  for (const Need& need : NeedsOf({workload}, profile.cluster)) {
    const auto* kernel = std::get_if<KernelKey>(&need.key);
    const bool flops = kernel != nullptr && CountsFlops(kernel->kernel);
    const CostModel model = MakeCostModel(flops ? AlphaBeta{0, 1e-9} : AlphaBeta{1e-30, 0});
    if (kernel != nullptr) profile.kernels.push_back({*kernel, model});
    if (const auto* one = std::get_if<CollectiveKey>(&need.key)) profile.collectives.push_back({*one, model});
  }
  CostIndex index(profile);
  constexpr double kShaved = 1e-7;  // What bounds leave for rounding.
  double fastest_s = std::numeric_limits<double>::infinity();
  for (const Knobs& variant : EveryVariant(workload)) {
    const std::vector<StreamCost> whole = StreamCosts(GraphOf(WithPieces(variant, 1), workload));
    for (const int pieces : PowersOfTwo(MaxPieces(variant.family, workload))) {
      const TaskGraph graph = GraphOf(WithPieces(variant, pieces), workload);
      const GraphPrices prices = PriceGraph(graph, profile);
      const double time_s = Play(graph, prices.tasks).total_s;
      fastest_s = std::min(fastest_s, time_s);
      EXPECT_NEAR(WorkInPiecesAtLeastS(whole, index, pieces), time_s, kShaved * time_s);
      EXPECT_NEAR(WorkInUnequalPiecesAtLeastS(whole, index, pieces, kShareUnits), time_s, kShaved * time_s);
      EXPECT_NEAR(OverlapFloorS(graph, prices.tasks), time_s, kShaved * time_s);
      EXPECT_NEAR(TaskOrderFloorS(graph, prices.tasks), time_s, kShaved * time_s);
    }
  }
  EXPECT_NEAR(LayerFloorS(workload, profile), fastest_s, kShaved * fastest_s);
}

// Prices that a test sets itself: what each of the two kinds of task takes alone, and how much longer beside the other.
TaskPrice Contended(double time_s, Contention imposes, Contention beside, double slowdown) {
  TaskPrice price = {.time_s = time_s, .imposes = imposes};
  price.slowdown[static_cast<size_t>(beside)] = slowdown;
  return price;
}

TEST(OverlapFloorTest, TwoTasksThatSlowEachOtherDownEndNoEarlier) {
  HandMadeGraph graph;
  graph.Expert(1);
  graph.AllToAll(Group::kExpert, 1);
  // Beside each other they save 1/2 + 1/1.25 - 1 = 0.3 of the time that both run. The exchange takes 6 · 1.25 = 7.5 s
  // of that, so of 10 + 6 s there are 7.5 · 0.3 saved: 13.75 s. So it is played: at 7.5 s, 3.75 of the 10 s are done.
  const std::vector<TaskPrice> prices = {Contended(10, Contention::kWithExpertGemm, Contention::kWithAllToAll, 2),
                                         Contended(6, Contention::kWithAllToAll, Contention::kWithExpertGemm, 1.25)};
  EXPECT_NEAR(OverlapFloorS(graph.graph(), prices), 13.75, 1e-12);
  EXPECT_NEAR(Play(graph.graph(), prices).total_s, 13.75, 1e-12);
}

TEST(OverlapFloorTest, TheLeastSlowedTaskRunsBesideTheOtherStreamFirst) {
  HandMadeGraph graph;
  graph.Expert(1);
  graph.Expert(1);
  graph.AllToAll(Group::kExpert, 1);
  // 4 · 1.5 = 6 s beside the exchange save 1/1.5 + 1/1.2 - 1 = 0.5 each. 1.2 s of the exchange's 6 · 1.2 are left for
  // the other, and save 1/2 + 1/1.2 - 1 = 1/3 each: 4 + 10 + 6 - 3 - 0.4 = 16.6 s.
  const std::vector<TaskPrice> prices = {Contended(4, Contention::kWithExpertGemm, Contention::kWithAllToAll, 1.5),
                                         Contended(10, Contention::kWithExpertGemm, Contention::kWithAllToAll, 2),
                                         Contended(6, Contention::kWithAllToAll, Contention::kWithExpertGemm, 1.2)};
  EXPECT_NEAR(OverlapFloorS(graph.graph(), prices), 16.6, 1e-12);
  EXPECT_NEAR(Play(graph.graph(), prices).total_s, 16.6, 1e-12);
  // In the other order they meet what slows them more, and end later.
  HandMadeGraph other;
  for (int i = 0; i < 2; ++i) other.Expert(1);
  other.AllToAll(Group::kExpert, 1);
  const std::vector<TaskPrice> swapped = {prices[1], prices[0], prices[2]};
  EXPECT_NEAR(OverlapFloorS(other.graph(), swapped), 16.6, 1e-12);
  EXPECT_GT(Play(other.graph(), swapped).total_s, 16.6 + 1e-3);
}

TEST(OverlapFloorTest, OfSeveralContentionsTheLeastCounts) {
  HandMadeGraph graph;
  graph.Expert(1);
  graph.AllToAll(Group::kExpert, 1);
  graph.Add(TaskKind::kAllGather, StreamKind::kInterNode, 1, CollectiveOp{.collective = Collective::kAllGather});
  TaskPrice expert = Contended(10, Contention::kWithExpertGemm, Contention::kWithAllToAll, 4);
  expert.slowdown[static_cast<size_t>(Contention::kWithAllGather)] = 2;
  // The expert is slowed twofold or fourfold; the floor takes it to be twofold: 10 + 2 + 3 s less half an hour an hour
  // of the 5 s that the other stream takes.
  const std::vector<TaskPrice> prices = {expert,
                                         {.time_s = 2, .imposes = Contention::kWithAllToAll},
                                         {.time_s = 3, .imposes = Contention::kWithAllGather}};
  EXPECT_NEAR(OverlapFloorS(graph.graph(), prices), 15 - 5 * 0.5, 1e-12);
}

TEST(OverlapFloorTest, OneStreamAloneTakesItsWork) {
  HandMadeGraph graph;
  graph.Expert(1);
  graph.Expert(1);
  const std::vector<TaskPrice> prices = {Contended(4, Contention::kWithExpertGemm, Contention::kWithAllToAll, 1.5),
                                         Contended(10, Contention::kWithExpertGemm, Contention::kWithAllToAll, 2)};
  EXPECT_NEAR(OverlapFloorS(graph.graph(), prices), 14, 1e-12);
  EXPECT_NEAR(Play(graph.graph(), prices).total_s, 14, 1e-12);
}

TEST(BoundsTest, NoOrderEndsBeforeTheFloorThatContentionLeaves) {
  std::mt19937_64 engine(TestSeed());
  double closest = 0, gained = 0;
  for (int i = 0; i < kCases; ++i) {
    const Workload workload = AnyWorkload(engine);
    const Profile profile = AnyProfile(engine, workload);
    for (const Knobs& variant : EveryVariant(workload)) {
      if (std::bernoulli_distribution(0.8)(engine)) continue;
      const TaskGraph graph = GraphOf(WithPieces(variant, MaxPieces(variant.family, workload)), workload);
      const GraphPrices prices = PriceGraph(graph, profile);
      const double floor_s = OverlapFloorS(graph, prices.tasks);
      double busiest_s[kStreamKinds] = {};
      for (size_t task = 0; task < graph.tasks.size(); ++task) {
        busiest_s[static_cast<int>(graph.tasks[task].stream)] += prices.tasks[task].time_s;
      }
      const double work_s = *std::ranges::max_element(busiest_s);
      ASSERT_GE(floor_s, work_s * (1 - kRounding));
      gained = std::max(gained, floor_s / work_s);
      for (int tried = 0; tried < 3; ++tried) {
        const TaskGraph other = tried == 0 ? graph : InAnyOrder(graph, engine);
        const double time_s = Play(other, PriceGraph(other, profile).tasks).total_s;
        ASSERT_LE(floor_s, time_s * (1 + kRounding));
        closest = std::max(closest, floor_s / time_s);
      }
    }
  }
  EXPECT_GT(closest, 0.95) << "a bound that is never near says nothing";
  EXPECT_GT(gained, 1.05) << "contention adds nothing to it";
}

// Without contention a search of one candidate's orders that ends knows the best of them.
TEST(BoundsTest, NoOrderOfAnyCandidateIsFasterThanTheAnswerNorThanTheFloorOfAShorterSearch) {
  std::mt19937_64 engine(TestSeed());
  int reordered = 0, cut_short = 0;
  for (int i = 0; i < 1000; ++i) {
    Workload workload = AnyWorkload(engine);
    workload.allow_lossy = false;
    workload.max_chunks = workload.max_partition_degree = 2;
    Profile profile = AnyProfile(engine, workload);
    std::erase_if(profile.collectives, [](const CollectiveModel& entry) {
      return entry.key.algorithm != AllToAllAlgorithm::kDirect || entry.key.contention != Contention::kNone;
    });
    std::erase_if(profile.kernels, [](const KernelModel& entry) { return entry.key.contention != Contention::kNone; });
    CostIndex index(profile);
    double fastest_s = std::numeric_limits<double>::infinity(), as_written_s = fastest_s;
    for (const Knobs& variant : EveryVariant(workload)) {
      if (variant.all_to_all != AllToAllAlgorithm::kDirect) continue;
      for (int pieces = 1; pieces <= MaxPieces(variant.family, workload); ++pieces) {
        const TaskGraph graph = GraphOf(WithPieces(variant, pieces), workload);
        const std::vector<TaskPrice> prices = PriceGraph(graph, profile).tasks;
        const PlayedGraph played = Play(graph, prices);
        const TaskOrderOutcome order = SearchTaskOrder(graph, prices, played, index, /*budget_nodes=*/100000, {});
        ASSERT_NEAR(order.time_floor_s, order.time_s, kRounding * order.time_s)
            << "the search did not end: " << Name(variant.family) << " of " << graph.tasks.size() << " tasks";
        fastest_s = std::min(fastest_s, order.time_s);
        as_written_s = std::min(as_written_s, played.total_s);
      }
    }
    const auto answer = PlanLayer(workload, profile, {.rules = false}, {.nodes = 1000000});
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    ASSERT_LE(answer->candidates.front().predicted_time_s, fastest_s * (1 + kRounding)) << "case " << i;
    ASSERT_EQ(answer->search.stop_reason, StopReason::kProvedBest) << "case " << i;
    const auto shorter = PlanLayer(workload, profile, {.rules = false}, {.nodes = 1});
    ASSERT_TRUE(shorter.ok()) << shorter.status().message();
    ASSERT_LE(shorter->search.time_floor_s, answer->candidates.front().predicted_time_s * (1 + kRounding))
        << "case " << i;
    if (fastest_s < as_written_s * (1 - kRounding)) ++reordered;
    if (shorter->search.stop_reason == StopReason::kOutOfBudget) ++cut_short;
  }
  EXPECT_GT(reordered, 20) << "schedules are in their best orders";
  EXPECT_GT(cut_short, 20) << "floors are reached without a search";
}

// What plain enumeration knows of the splits of one variant in so many pieces. Infinity where none is allowed.
struct Enumerated {
  double equal_s = 0;
  double least_unequal_s = std::numeric_limits<double>::infinity();
  int allowed = 0;  // Unequal splits.

  double least_s() const { return std::min(equal_s, least_unequal_s); }
};

Enumerated Enumerate(const Knobs& equal, const Workload& workload, const Profile& profile) {
  const auto time_s = [&](const Knobs& knobs) {
    const TaskGraph graph = GraphOf(knobs, workload);
    return Play(graph, PriceGraph(graph, profile).tasks).total_s;
  };
  Enumerated found = {.equal_s = time_s(equal)};
  for (const std::vector<int>& units : UnequalSplits(PiecesOf(equal))) {
    Knobs knobs = equal;
    knobs.chunk_shares = SharesOf(units);
    if (!ChunkSharesAllowed(knobs, workload).ok()) continue;
    ++found.allowed;
    found.least_unequal_s = std::min(found.least_unequal_s, time_s(knobs));
  }
  return found;
}

// Thirds are no multiples of an eighth. They may end before every unequal split, and then before the bound of those.
struct UnequalCases {
  int cases = 0, faster = 0, thirds_below_bound = 0;
  double closest = 0;  // Of the bound to the fastest unequal split.
};

void CheckUnequalChunks(uint64_t seed, UnequalCases& seen, const std::function<void(Profile&)>& change = {}) {
  std::mt19937_64 engine(seed);
  const int last = seen.cases + 1000;
  while (seen.cases < last) {
    const Workload workload = AnyWorkload(engine);
    Profile profile = AnyProfile(engine, workload);
    if (change) change(profile);
    CostIndex index(profile);
    for (const Knobs& variant : EveryVariant(workload)) {
      if (std::bernoulli_distribution(0.9)(engine)) continue;
      const TaskGraph whole = GraphOf(WithPieces(variant, 1), workload);
      for (int pieces = 2; pieces <= std::min(MaxPieces(variant.family, workload), kMostUnequalPieces); ++pieces) {
        const Knobs equal = WithPieces(variant, pieces);
        const Enumerated enumerated = Enumerate(equal, workload, profile);
        double found_s = enumerated.equal_s;
        const int weighed = WeighUnequalChunks(equal, workload, index, found_s, [&](const Knobs& knobs) {
          const TaskGraph graph = GraphOf(knobs, workload);
          found_s = Play(graph, PriceGraph(graph, profile).tasks).total_s;
          return found_s;
        });
        const double least_s = enumerated.least_s();
        ASSERT_LE(weighed, enumerated.allowed);
        ASSERT_NEAR(found_s, least_s, kRounding * least_s)
            << "seed " << seed << ": " << Name(variant.family) << " in " << pieces;
        const double bound_s = WorkInUnequalPiecesAtLeastS(StreamCosts(whole), index, pieces, kShareUnits);
        ASSERT_LE(bound_s, enumerated.least_unequal_s * (1 + kRounding))
            << "seed " << seed << ": " << Name(variant.family) << " in " << pieces;
        // Halves and quarters are multiples of an eighth, so the bound counts them in.
        if (bound_s > enumerated.equal_s * (1 + kRounding)) {
          ASSERT_EQ(pieces, 3) << "seed " << seed;
          ++seen.thirds_below_bound;
        }
        if (enumerated.allowed > 0) seen.closest = std::max(seen.closest, bound_s / enumerated.least_unequal_s);
        if (least_s < enumerated.equal_s * (1 - kRounding)) ++seen.faster;
        ++seen.cases;
      }
    }
  }
}

TEST(BoundsTest, UnequalChunksAreThoseThatPlainEnumerationFinds) {
  UnequalCases seen;
  CheckUnequalChunks(TestSeed(), seen);
  EXPECT_GT(seen.faster, seen.cases / 10);
}

// The bound is of the work of one stream, so it is near where the others' hardly counts and nothing slows this one
// down.
TEST(BoundsTest, OfUnequalChunksOfNearlyFreeExchangesTheBoundIsNear) {
  UnequalCases seen;
  CheckUnequalChunks(TestSeed(), seen, [](Profile& profile) {
    for (CollectiveModel& entry : profile.collectives) {
      for (TimePoint& point : std::get<LogLog>(entry.model.curve).points) point.time_s *= 1e-6;
    }
    for (KernelModel& entry : profile.kernels) {
      for (TimePoint& point : std::get<LogLog>(entry.model.curve).points) {
        point.time_s = 1e-12 * std::pow(point.size, 1.2);  // Pieces are cheaper than the whole.
      }
    }
  });
  EXPECT_GT(seen.closest, 0.995) << "a bound that is never near says nothing";
}

TEST(BoundsTest, ThirdsMayEndBeforeTheBoundOfUnequalChunks) {
  UnequalCases seen;
  CheckUnequalChunks(/*seed=*/10, seen);
  EXPECT_GT(seen.thirds_below_bound, 0) << "the bound is said to leave thirds out, and does not";
}

TEST(BoundsTest, TheSearchFindsWhatPlainEnumerationFinds) {
  std::mt19937_64 engine(TestSeed());
  int better = 0, unequal = 0, limited = 0, unpriced = 0;
  for (int i = 0; i < kCases; ++i) {
    const Workload workload = AnyWorkload(engine);
    const Profile profile =
        i % 2 == 0 ? AnyProfile(engine, workload) : WithLimits(engine, AnyProfile(engine, workload));
    // Absent: a cost is missing.
    const auto time_of = [&](const Knobs& knobs) -> std::optional<double> {
      const TaskGraph graph = GraphOf(knobs, workload);
      const GraphPrices prices = PriceGraph(graph, profile);
      if (!prices.missing.empty()) return std::nullopt;
      return Play(graph, prices.tasks).total_s;
    };
    double fastest_s = std::numeric_limits<double>::infinity();
    Knobs fastest;
    for (Knobs variant : EveryVariant(workload)) {
      for (const int ctas : {0, kLimits[0], kLimits[1]}) {
        variant.communication_ctas = ctas;
        const bool coded = variant.dispatch_codec != Codec::kNone || variant.combine_codec != Codec::kNone;
        const int most = MaxPieces(variant.family, workload);
        for (const int pieces : coded ? PowersOfTwo(most) : ChunkCounts(most)) {
          const std::optional<double> time_s = time_of(WithPieces(variant, pieces));
          if (!time_s) {
            ASSERT_NE(ctas, 0);
            ++unpriced;
            break;
          }
          if (*time_s < fastest_s) fastest = variant;
          fastest_s = std::min(fastest_s, *time_s);
        }
      }
    }
    const double equal_s = fastest_s;
    for (int pieces = 2; pieces <= MaxPieces(fastest.family, workload); ++pieces) {
      for (const std::vector<int>& units : UnequalSplits(pieces)) {
        Knobs knobs = WithPieces(fastest, pieces);
        knobs.chunk_shares = SharesOf(units);
        if (ChunkSharesAllowed(knobs, workload).ok()) fastest_s = std::min(fastest_s, *time_of(knobs));
      }
    }
    if (fastest_s < equal_s * (1 - kRounding)) ++unequal;
    const auto answer = PlanLayer(workload, profile, {.rules = false});
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    const Plan& best = answer->candidates.front();
    ASSERT_LE(best.predicted_time_s, fastest_s * (1 + kRounding));
    if (best.predicted_time_s < fastest_s * (1 - kRounding))
      ++better;  // Another launch order, or another family's sizes.
    ASSERT_LE(answer->search.time_floor_s, best.predicted_time_s * (1 + kRounding));
    ASSERT_LE(answer->search.time_floor_s, fastest_s * (1 + kRounding));
    ASSERT_LE(LayerFloorS(workload, profile), best.predicted_time_s * (1 + kRounding));
    if (best.knobs.communication_ctas != 0) ++limited;

    // What is promised is what a job would run.
    StatusOr<TaskGraph> planned = BuildPlanned(best.knobs, best.order, workload, kTwoByTwo);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    const TaskGraph run = PartOf(*std::move(planned), workload.phase);
    ASSERT_NEAR(Play(run, PriceGraph(run, profile).tasks).total_s, best.predicted_time_s,
                kRounding * best.predicted_time_s);
    // Unequal chunks are promised in the order of their schedule alone.
    for (int tried = 0; tried < 20 && best.knobs.chunk_shares.empty(); ++tried) {
      const TaskGraph other = InAnyOrder(run, engine);
      ASSERT_GE(Play(other, PriceGraph(other, profile).tasks).total_s, answer->search.time_floor_s * (1 - kRounding));
    }
  }
  EXPECT_GT(better, 0) << "no case has anything to search for";
  EXPECT_GT(unequal, 0) << "no case gains from unequal sizes";
  EXPECT_GT(limited, 0) << "fewer CTAs never win";
  EXPECT_LT(limited, kCases / 2) << "fewer CTAs never lose";
  EXPECT_GT(unpriced, 0) << "every limit is measured of everything";
}

// Nodes are too few for all of these; one candidate may not take them from the others.
TEST(BoundsTest, MoreChoicesAreNotWorse) {
  for (const unsigned seed : {91, 112, 136, 262, 344}) {
    std::mt19937_64 engine(seed);
    Workload workload = AnyWorkload(engine);
    const Profile profile = AnyProfile(engine, workload);
    const auto best_s = [&](int most_pieces) {
      workload.max_chunks = workload.max_partition_degree = most_pieces;
      return PlanLayer(workload, profile, {.rules = false}, {.nodes = 10000})->candidates.front().predicted_time_s;
    };
    EXPECT_LE(best_s(4), best_s(2) * 1.01) << "seed " << seed;
  }
}

// The knobs but for the number of pieces.
bool SameVariant(const Knobs& a, const Knobs& b) { return WithPieces(a, 1) == WithPieces(b, 1); }

TEST(BoundsTest, NoChunkCountIsFasterThanTheOneThatIsListed) {
  std::mt19937_64 engine(TestSeed());
  int odd = 0;
  for (int i = 0; i < 2000; ++i) {
    Workload workload = AnyWorkload(engine);
    workload.allow_lossy = false;
    workload.phase = Phase::kForward;
    workload.max_chunks = workload.max_partition_degree = 5;
    Profile profile = AnyProfile(engine, workload);
    std::erase_if(profile.collectives,
                  [](const CollectiveModel& entry) { return entry.key.algorithm != AllToAllAlgorithm::kDirect; });
    const auto answer = PlanLayer(workload, profile, {.rules = false}, {.nodes = 1});
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    const double floor_s = LayerFloorS(workload, profile);
    for (const Knobs& variant : EveryVariant(workload)) {
      if (variant.all_to_all != AllToAllAlgorithm::kDirect) continue;
      double fastest_s = std::numeric_limits<double>::infinity(), listed_s = fastest_s;
      int fastest_pieces = 0;
      for (int pieces = 1; pieces <= MaxPieces(variant.family, workload); ++pieces) {
        const TaskGraph graph = GraphOf(WithPieces(variant, pieces), workload);
        const double time_s = Play(graph, PriceGraph(graph, profile).tasks).total_s;
        if (time_s < fastest_s) fastest_s = time_s, fastest_pieces = pieces;
      }
      for (const Plan& plan : answer->candidates) {
        ASSERT_LE(floor_s, plan.predicted_time_s * (1 + kRounding)) << "case " << i;
        if (SameVariant(plan.knobs, variant)) listed_s = std::min(listed_s, plan.predicted_time_s);
      }
      // Another launch order may be faster still.
      ASSERT_LE(listed_s, fastest_s * (1 + kRounding)) << "case " << i << ": " << Name(variant.family);
      ASSERT_GE(fastest_s * (1 + kRounding), answer->candidates.front().predicted_time_s) << "case " << i;
      if (!IsPowerOfTwo(fastest_pieces)) ++odd;
    }
  }
  EXPECT_GT(odd, 100) << "powers of two alone would do";
}

}  // namespace
}  // namespace moeplan::planner
