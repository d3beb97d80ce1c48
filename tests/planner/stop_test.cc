// Whoever asks the planner to stop gets it back at once, wherever it is: what a request makes long looks at the signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <stop_token>
#include <thread>

#include "models/measurement/needs.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/gradients/place_gradients.h"
#include "planner/lancet/schedule.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/rank_layouts.h"
#include "planner/routing/place_experts.h"
#include "planner/routing/plan_routed_layer.h"
#include "planner/rules/lancet.h"
#include "planner/rules/monta.h"
#include "planner/rules/schemoe.h"
#include "planner/search/plan_layer.h"
#include "planner/search/stage_order.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/chunk_order.h"

namespace moeplan::planner {
namespace {

using Seconds = std::chrono::duration<double>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif
// Processor time, so that a busy machine changes nothing.
constexpr double kPromptS = 0.1 * kSlower;

double CpuS(clockid_t clock) {
  timespec now = {};
  EXPECT_EQ(clock_gettime(clock, &now), 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The processor time that `work` takes after it was asked to stop, `after` from its start; 0 where it was done by then.
double CpuSAfterStop(Seconds after, const std::function<void(const StopSignals&)>& work) {
  std::stop_source stop;
  std::atomic<bool> done = false, is_read = false;  // is_read: nobody asks for the thread's clock any more.
  double at_stop_s = 0, at_end_s = 0;
  clockid_t clock = {};
  std::atomic<bool> started = false;
  std::jthread worker([&] {
    EXPECT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0);
    started = true;
    started.notify_one();
    work({.cancelled = stop.get_token(), .out_of_time = {}});
    at_end_s = CpuS(CLOCK_THREAD_CPUTIME_ID);
    done = true;
    is_read.wait(false);
  });
  started.wait(false);
  // What is asked holds for any moment; this only makes them different ones.
  const auto until = std::chrono::steady_clock::now() + after;
  while (!done && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  // Read behind the request: what else runs on the machine may hold this thread between the two.
  stop.request_stop();
  at_stop_s = CpuS(clock);
  is_read = true;
  is_read.notify_one();
  worker.join();
  return std::max(0.0, at_end_s - at_stop_s);
}

void ExpectPrompt(const char* what, const std::function<void(const StopSignals&)>& work) {
  for (const double after_s : {0.0, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3}) {
    EXPECT_LT(CpuSAfterStop(Seconds(after_s), work), kPromptS) << what << ", stopped after " << after_s << " s";
  }
}

// A call may also be answered before it notices the stop; nothing else is right.
void ExpectAnswerOrCancelled(const Status& status) {
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status.message();
}

// ---- The longest layer that may be asked.

constexpr Cluster kTwoByTwo = {.nodes = 2, .gpus_per_node = 2};

Workload LongWorkload() {
  Workload workload;
  workload.layer = {.batch = 64,
                    .sequence_length = 65536,
                    .model_dim = 64,
                    .hidden_dim = 256,
                    .experts = 64,
                    .top_k = 2,
                    .capacity_factor = 1};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1e-9;
  workload.max_chunks = workload.max_partition_degree = kMostPiecesAsked;
  workload.allow_lossy = true;
  workload.phase = Phase::kTraining;
  workload.gradient_bytes = 1e12;
  workload.routing = ExpertRouting{.tokens_per_expert = {}, .skew = 1.1};
  return workload;
}

// Dented curves, slowdowns and intervals for all of it, so that nothing is ruled out early.
Profile LongProfile(Workload workload) {
  workload.max_chunks = workload.max_partition_degree = 2;  // More ask for the same costs at smaller sizes.
  std::mt19937_64 engine(1);
  Profile profile{.cluster = kTwoByTwo};
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({workload}, profile.cluster)) keys.insert(need.key);
  keys.insert(Over(Collective::kAllReduce, {2, 1}));
  const auto around = [&](double value) { return value * std::exp(std::uniform_real_distribution(-1.0, 1.0)(engine)); };
  for (const CostKey& key : keys) {
    const auto* kernel = std::get_if<KernelKey>(&key);
    const bool flops = kernel != nullptr && CountsFlops(kernel->kernel);
    const double start_s = around(1e-6), s_per_unit = around(flops ? 1e-13 : 1e-10);
    LogLog curve;
    for (double size = 1024; size < 1e13; size *= 8) {
      curve.points.push_back({size, (start_s + s_per_unit * size) * std::uniform_real_distribution(0.7, 1.3)(engine)});
    }
    CostModel model = MakeCostModel(curve);
    model.fit = FitQuality{.interval_low_ratio = 0.9, .interval_high_ratio = 1.1};
    if (kernel != nullptr) profile.kernels.push_back({*kernel, model});
    if (const auto* one = std::get_if<CollectiveKey>(&key)) profile.collectives.push_back({*one, model});
  }
  return profile;
}

TEST(StopTest, PlanningALayerStopsAtOnce) {
  const Workload workload = LongWorkload();
  const Profile profile = LongProfile(workload);
  ExpectPrompt("plan", [&](const StopSignals& stop) {
    ExpectAnswerOrCancelled(PlanRoutedLayer(workload, profile, {}, {.nodes = kMostBudgetNodes, .stop = stop}).status());
  });
  Workload forward = workload;
  forward.gradient_bytes = 0;
  forward.allow_lossy = false;
  forward.phase = Phase::kForward;
  forward.max_chunks = forward.max_partition_degree = kMostOrderedPieces;
  ExpectPrompt("launch orders", [&](const StopSignals& stop) {
    ExpectAnswerOrCancelled(
        PlanLayer(forward, profile, {.rules = false}, {.nodes = kMostBudgetNodes, .stop = stop}).status());
  });
}

TEST(StopTest, TheRulesStopAtOnce) {
  const Workload workload = Resolved(LongWorkload(), kTwoByTwo);
  const Profile profile = LongProfile(workload);
  PriceNotes notes;
  ExpectPrompt("monta", [&](const StopSignals& stop) {
    ExpectAnswerOrCancelled(MontaRule(workload, profile, notes, nullptr, stop).status());
  });
  ExpectPrompt("schemoe", [&](const StopSignals& stop) {
    ExpectAnswerOrCancelled(SchemoeRule(workload, profile, notes, nullptr, stop).status());
  });
}

TEST(StopTest, ARuleThatIsStoppedSaysSo) {
  const Workload workload = Resolved(LongWorkload(), kTwoByTwo);
  const Profile profile = LongProfile(workload);
  std::stop_source stopped;
  stopped.request_stop();
  PriceNotes notes;
  for (const StopSignals& stop : {StopSignals{.cancelled = stopped.get_token(), .out_of_time = {}},
                                  StopSignals{.cancelled = {}, .out_of_time = stopped.get_token()}}) {
    EXPECT_EQ(MontaRule(workload, profile, notes, nullptr, stop).status().code(), StatusCode::kCancelled);
    EXPECT_EQ(SchemoeRule(workload, profile, notes, nullptr, stop).status().code(), StatusCode::kCancelled);
  }
}

// ---- Searches by themselves.

TEST(StopTest, ASearchOfOrdersStopsAtOnceAndItsFloorHolds) {
  std::mt19937_64 engine(2);
  std::vector<ChunkStage> stages;
  for (const char* name : {"C1", "A1", "D1", "E", "C2", "A2", "D2"}) {
    const Lane lane = name[0] == 'A' ? Lane::kCommunication : Lane::kCompute;
    stages.push_back({name, lane, std::uniform_real_distribution(0.5, 1.5)(engine)});
  }
  const std::vector<OrderedStage> chain = ChainOf(stages, 24);
  const StageOrder known = OptSche(stages, 24);
  const double known_s = PlayStages(chain, known).time_s;
  ExpectPrompt("stage order", [&](const StopSignals& stop) {
    const StageOrderOutcome found = SearchStageOrder(chain, known, kMostBudgetNodes, stop);
    EXPECT_LE(found.time_s, known_s);
    EXPECT_LE(found.time_floor_s, found.time_s * (1 + 1e-12));
    EXPECT_EQ(PlayStages(chain, found.order).time_s, found.time_s);
  });
}

TEST(StopTest, PlacingExpertsStopsAtOnce) {
  std::mt19937_64 engine(3);
  for (const int experts : {64, kMaxRoutedExperts}) {
    std::vector<double> loads(experts);
    for (double& load : loads) load = std::uniform_real_distribution(0.0, 1.0)(engine);
    ExpectPrompt("experts", [&](const StopSignals& stop) {
      const Placement placement = PlaceExperts(loads, 32, 1 << 30, stop);
      EXPECT_LE(placement.busiest_load_floor, placement.busiest_load * (1 + 1e-12));
    });
  }
}

// ---- Training graphs.

// Blocks of a weight gradient and an all-to-all that do not need each other, behind forward all-to-alls and experts.
TrainingGraph LongGraph(int instructions) {
  std::mt19937_64 engine(4);
  const auto any_s = [&] { return std::uniform_real_distribution(1e-5, 1e-3)(engine); };
  TrainingGraph graph{.max_parts = kMostParts};
  for (int i = 0; i < instructions; ++i) {
    const bool forward = i < instructions / 2, even = i % 2 == 0;
    Instruction one = {.id = StrCat("i", i),
                       .op = even ? InstructionOp::kAllToAll : InstructionOp::kExpert,
                       .phase = forward ? Pass::kForward : Pass::kBackward,
                       .time_s = any_s(),
                       .outputs = {StrCat("t", i)}};
    for (int k = 1; k <= kMostParts; ++k) one.part_times_s.push_back(*one.time_s / k + 1e-6);
    if (forward && i > 0) one.inputs = {StrCat("t", i - 1)};
    one.weight_gradient = !forward && !even;
    graph.instructions.push_back(std::move(one));
  }
  return graph;
}

TEST(StopTest, PlanningATrainingGraphStopsAtOnce) {
  for (const int instructions : {24, 400, kMostInstructions}) {
    const TrainingGraph graph = LongGraph(instructions);
    ExpectPrompt("graph", [&](const StopSignals& stop) {
      ExpectAnswerOrCancelled(PlanGraph(graph, nullptr, {}, stop.cancelled).status());
    });
  }
}

// ---- Layouts.

// Everything here is within the bounds of a request, and has many divisors: 720720 GPUs of one node, 55440 experts.
LayoutRequest RequestOfManyDivisors() {
  LayoutRequest request;
  request.model = {.model_dim = 720720, .heads = 720720, .kv_heads = 720720, .head_dim = 1};
  request.model.expert_hidden_dim = 720720;
  request.model.experts = 55440;
  request.model.top_k = 2;
  request.model.vocab = 32000;
  request.model.moe_layer.assign(2520, true);
  request.gpus = 720720;
  request.global_batch = 720720 * 16;
  request.sequence_length = 720720;
  request.top = 10;
  return request;
}

TEST(StopTest, CountingLayoutsStopsAtOnce) {
  const LayoutRequest request = RequestOfManyDivisors();
  const Cluster cluster = {.nodes = 1, .gpus_per_node = request.gpus};
  ExpectPrompt("all layout points", [&](const StopSignals& stop) { AllLayoutPoints(request, cluster, stop); });
}

TEST(StopTest, MoreLayoutsThanCanBePricedAreRefused) {
  const LayoutRequest request = RequestOfManyDivisors();
  Profile profile;
  profile.cluster = {.nodes = 1, .gpus_per_node = request.gpus};
  const auto answer = RankLayouts(request, profile);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(answer.status().message(), ::testing::StartsWith("gpus: the model has more than 1048576 layouts"));
}

TEST(StopTest, RankingLayoutsStopsAtOnce) {
  LayoutRequest request;
  request.model = {.model_dim = 4096, .heads = 64, .kv_heads = 64, .head_dim = 64};
  request.model.expert_hidden_dim = 16384;
  request.model.experts = 4096;
  request.model.top_k = 2;
  request.model.vocab = 32000;
  request.model.moe_layer.assign(4096, true);
  request.gpus = 1 << 20;
  request.global_batch = 1 << 24;
  request.sequence_length = 1 << 16;
  Profile profile;
  profile.cluster = {.nodes = 2, .gpus_per_node = 8};
  profile.collectives = {Line(Over(Collective::kAllToAll, {16, 8}), 1e-5, 1e-10),
                         Line(Over(Collective::kAllToAll, {8, 8}), 1e-5, 1e-10),
                         Line(Over(Collective::kAllReduce, {8, 8}), 1e-5, 1e-10),
                         Line(Over(Collective::kAllReduce, {16, 8}), 1e-5, 1e-10),
                         Line(Over(Collective::kAllGather, {8, 8}), 1e-5, 1e-10),
                         Line(Over(Collective::kReduceScatter, {8, 8}), 1e-5, 1e-10)};
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 1e-14)};
  request.top = 0;
  ExpectPrompt("layouts", [&](const StopSignals& stop) {
    ExpectAnswerOrCancelled(RankLayouts(request, profile, {.cancelled = stop.cancelled}).status());
  });
}

}  // namespace
}  // namespace moeplan::planner
