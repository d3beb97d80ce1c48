// A layer as a training job uses it, on four ranks as threads: against the reference, call after call, and what it
// answers to wrong calls.
#include "executor/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>

#include "executor/host/host_kernels.h"
#include "executor/host/host_stream.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "tests/executor/example_layer.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;

// New values where the old ones lie.
void Overwrite(LayerWeights& weights, const LayerWeights& values) {
  const auto overwrite = [](ExpertWeights& part, const ExpertWeights& by) {
    for (const auto tensor : {&ExpertWeights::up, &ExpertWeights::gate_up, &ExpertWeights::down,
                              &ExpertWeights::up_bias, &ExpertWeights::gate_up_bias, &ExpertWeights::down_bias}) {
      std::ranges::copy(by.*tensor, (part.*tensor).begin());
    }
  };
  std::ranges::copy(values.gate, weights.gate.begin());
  overwrite(weights.experts, values.experts);
  overwrite(weights.shared, values.shared);
}

// Runs both passes on `rows`, made with `seed` as the layer's weights, checks them, and returns what came out.
Rows RunAndCheck(MoeLayer& moe, const LayerPlan& plan, const Rows& rows, uint64_t seed) {
  const Layer& layer = plan.workload.layer;
  const Reference reference = ReferenceOf(plan, rows, seed);
  Bytes there = RowBytesOf(rows.input, layer), back = RowBytesOf(rows.output_gradient, layer);
  EXPECT_EQ(moe.Forward(there, there), OkStatus());
  EXPECT_EQ(moe.Backward(back, back), OkStatus());
  const Rows found = {RowFloatsOf(there, layer), RowFloatsOf(back, layer)};
  const ReferenceGradients& gradients = reference.gradients;
  ExpectClose(found.input, reference.forward.output, reference.forward.largest_magnitude, layer, "output");
  ExpectClose(found.output_gradient, gradients.input.values, gradients.input.largest_magnitude, layer,
              "input gradient");
  ExpectClose(moe.gate_gradient(), gradients.gate.values, gradients.gate.largest_magnitude, layer, "gate gradient");
  return found;
}

// The job changes the weights between its calls: seeds 1, 2, 3.
void ExpectReferenceCallAfterCall(const LayerPlan& plan) {
  OnEveryRank([&](HostRank& host, int rank) {
    LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    StatusOr<MoeLayer> moe = MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(StrCat("rank ", rank, " seed ", seed));
      Overwrite(weights, WeightsOf(plan, rank, seed));
      RunAndCheck(*moe, plan, RowsOf(plan, rank, seed), seed);
    }
  });
}

TEST(MoeLayerTest, EqualsTheReferenceCallAfterCallByEveryFamily) {
  for (const Family family :
       {Family::kBaseline, Family::kBaselineTp, Family::kParmS1, Family::kParmS2, Family::kMontaO1, Family::kMontaO2,
        Family::kMontaO3, Family::kPipeline, Family::kOncePerNode}) {
    SCOPED_TRACE(std::string(Name(family)));
    ExpectReferenceCallAfterCall(PlanOf(family));
  }
}

TEST(MoeLayerTest, EqualsTheReferenceInBfloat16) { ExpectReferenceCallAfterCall(PlanOf(Family::kParmS2, 2)); }

TEST(MoeLayerTest, AddsTheExpertGradientsOfItsCalls) {
  const LayerPlan plan = ExpertParallelPlan();
  const Layer& layer = plan.workload.layer;
  ReferenceExpertGradients expected;
  for (int batch = 0; batch < kRanks; ++batch) {
    for (const uint64_t seed : {1, 2}) expected += ReferenceOf(plan, RowsOf(plan, batch, seed), seed).gradients.experts;
  }
  OnEveryRank([&](HostRank& host, int rank) {
    LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    StatusOr<MoeLayer> moe = MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    for (const uint64_t seed : {1, 2}) {
      Overwrite(weights, WeightsOf(plan, rank, seed));
      RunAndCheck(*moe, plan, RowsOf(plan, rank, seed), seed);
    }
    // Expert number `rank`, alone.
    const auto expect = [&](const std::vector<float>& found, const ReferenceGradient& all, const char* what) {
      const auto own = std::span(all.values).subspan(rank * found.size(), found.size());
      ExpectClose(found, own, all.largest_magnitude, layer, what);
    };
    expect(gradients.experts.up, expected.up, "up");
    expect(gradients.experts.gate_up, expected.gate_up, "gate_up");
    expect(gradients.experts.down, expected.down, "down");
    expect(gradients.experts.down_bias, expected.down_bias, "down_bias");
  });
}

// input → first → second → output, and back, on the streams and groups of one rank.
TEST(MoeLayerTest, LayersOfARankRunOneAfterTheOther) {
  const LayerPlan first_plan = PlanOf(Family::kParmS1), second_plan = PlanOf(Family::kMontaO2);
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights first_weights = WeightsOf(first_plan, rank, 1), second_weights = WeightsOf(second_plan, rank, 2);
    LayerGradients first_gradients = ZeroGradients(first_weights), second_gradients = ZeroGradients(second_weights);
    StatusOr<MoeLayer> first = MoeLayer::Make(first_plan, host.runtime(), first_weights, &first_gradients);
    StatusOr<MoeLayer> second = MoeLayer::Make(second_plan, host.runtime(), second_weights, &second_gradients);
    ASSERT_TRUE(first.ok() && second.ok());
    const Layer& layer = first_plan.workload.layer;
    const Rows outer = RowsOf(first_plan, rank, 1);
    Bytes there = RowBytesOf(outer.input, layer), back = RowBytesOf(outer.output_gradient, layer);
    EXPECT_EQ(first->Forward(there, there), OkStatus());
    const Rows into_second = {RowFloatsOf(there, layer), outer.output_gradient};
    EXPECT_EQ(second->Forward(there, there), OkStatus());
    EXPECT_EQ(second->Backward(back, back), OkStatus());
    const Reference second_reference = ReferenceOf(second_plan, into_second, 2);
    ExpectClose(RowFloatsOf(there, layer), second_reference.forward.output, second_reference.forward.largest_magnitude,
                layer, "output");
    const Rows into_first = {outer.input, RowFloatsOf(back, layer)};
    EXPECT_EQ(first->Backward(back, back), OkStatus());
    const ReferenceGradient& expected = ReferenceOf(first_plan, into_first, 1).gradients.input;
    ExpectClose(RowFloatsOf(back, layer), expected.values, expected.largest_magnitude, layer, "input gradient");
  });
}

TEST(MoeLayerTest, TellsWhatTheLastCallsDid) {
  const LayerPlan plan = PlanOf(Family::kParmS2);
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    EXPECT_TRUE(moe.LastTimeline(Phase::kForward).empty());
    RunAndCheck(moe, plan, RowsOf(plan, rank, 1), 1);
    const Timeline forward = moe.LastTimeline(Phase::kForward), backward = moe.LastTimeline(Phase::kBackward);
    const TaskGraph graph = *BuildSchedule(plan.knobs, moe.workload(), plan.cluster);
    EXPECT_EQ(forward.size(), graph.first_backward);
    EXPECT_EQ(forward.size() + backward.size(), graph.tasks.size());
    EXPECT_EQ(moe.LastTimeline(Phase::kTraining).size(), graph.tasks.size());
    for (const TaskTiming& task : forward) {
      EXPECT_LE(task.start_s, task.end_s);
      for (const TaskTiming& later : backward) EXPECT_LE(task.end_s, later.start_s);
    }
    // 18 tokens choose 2 experts each.
    EXPECT_EQ(moe.router_statistics()->tokens, 18);
    EXPECT_EQ(AllPairs(*moe.router_statistics()), 36);
  });
}

// Counts what a device is asked to make, and copies slowly.
class WatchedDevice final : public Device {
 public:
  explicit WatchedDevice(Device& device) : device_(device) {}

  int made() const { return made_; }

  StatusOr<DeviceMemory> Allocate(size_t bytes) override { return ++made_, device_.Allocate(bytes); }
  bool host_reads_memory() const override { return device_.host_reads_memory(); }
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority) override {
    return ++made_, device_.MakeStream(name, priority);
  }
  std::unique_ptr<Event> MakeEvent() override { return ++made_, device_.MakeEvent(); }
  void Record(Event& event, Stream& stream) override { device_.Record(event, stream); }
  void Wait(Stream& stream, Event& event) override { device_.Wait(stream, event); }
  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    HostStream::Of(stream).Enqueue([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return OkStatus();
    });
    device_.Copy(to, from, bytes, stream);
  }
  void Label(Stream& stream, const std::string& task) override { device_.Label(stream, task); }
  std::unique_ptr<Recording> Capture(std::function<void()> queue) override { return device_.Capture(std::move(queue)); }
  Status Synchronize() override { return device_.Synchronize(); }
  Status Await(Stream& stream) override { return device_.Await(stream); }
  double TimeS(const Event& event) const override { return device_.TimeS(event); }

 private:
  Device& device_;
  int made_ = 0;
};

TEST(MoeLayerTest, CallsMakeNeitherMemoryNorStreamsNorEvents) {
  LayerPlan plan = ExpertParallelPlan();
  plan.knobs.all_to_all = AllToAllAlgorithm::kPipe;
  OnEveryRank([&](HostRank& host, int rank) {
    WatchedDevice device(host.device());
    RankRuntime runtime(device, host.world(), MakeHostKernels);
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, runtime, weights, &gradients);
    const int made = device.made();
    EXPECT_GT(made, 0);
    RunAndCheck(moe, plan, RowsOf(plan, rank, 1), 1);
    EXPECT_EQ(device.made(), made);
  });
}

// BASELINE gathers its input on a stream that nothing else has used before.
TEST(MoeLayerTest, NoStreamStartsBeforeTheInputIsThere) {
  const LayerPlan plan = PlanOf(Family::kBaseline);
  OnEveryRank([&](HostRank& host, int rank) {
    WatchedDevice device(host.device());
    RankRuntime runtime(device, host.world(), MakeHostKernels);
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, runtime, weights, &gradients);
    RunAndCheck(moe, plan, RowsOf(plan, rank, 1), 1);
  });
}

// Ranks 0 and 1 are a stage, 2 and 3 another, each with a layer and a number of calls of its own.
TEST(MoeLayerTest, PipelineStagesRunApart) {
  LayerPlan plan = PlanOf(Family::kParmS1);
  plan.workload.layout = {.expert_parallel = 2, .pipeline_parallel = 2};
  OnEveryRank([&](HostRank& host, int rank) {
    const uint64_t stage = rank / 2, seed = stage + 1;
    const int stage_rank = rank % 2;
    EXPECT_EQ(host.runtime().StageRank(plan.workload.layout), stage_rank);
    const LayerWeights weights = WeightsOf(plan, stage_rank, seed);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    for (uint64_t call = 0; call <= stage; ++call) RunAndCheck(moe, plan, RowsOf(plan, stage_rank, seed), seed);
  });
}

TEST(MoeLayerTest, RefusesCallsThatDoNotFitThePlan) {
  const LayerPlan plan = ExpertParallelPlan();
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    // 18 tokens of 12 elements of 4 bytes.
    Bytes rows(864), short_rows(863);
    EXPECT_EQ(moe.Backward(rows, rows).message(),
              "Backward: no Forward to go back through; call Forward first, once for each Backward");
    EXPECT_EQ(moe.Forward(short_rows, rows).message(),
              "input: found 863 bytes, expected 864: the tokens of a source batch, 12 elements of 4 bytes each");
    EXPECT_EQ(moe.Forward(rows, short_rows).code(), StatusCode::kInvalidInput);
    EXPECT_EQ(moe.Forward(rows, rows), OkStatus());
    EXPECT_EQ(moe.Backward(short_rows, rows).code(), StatusCode::kInvalidInput);
    EXPECT_EQ(moe.Backward(rows, rows), OkStatus());
    EXPECT_EQ(moe.Backward(rows, rows).code(), StatusCode::kInvalidInput);
  });
}

TEST(MoeLayerTest, AForwardOnlyPlanSaysSo) {
  LayerPlan plan = ExpertParallelPlan();
  plan.workload.phase = Phase::kForward;
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    MoeLayer moe = *MoeLayer::Make(plan, host.runtime(), weights);
    Bytes rows(864);
    EXPECT_EQ(moe.Forward(rows, rows), OkStatus());
    EXPECT_EQ(moe.Backward(rows, rows).message(),
              "Backward: the plan is for phase FORWARD; make the layer from one for TRAINING or BACKWARD");
    EXPECT_TRUE(moe.gate_gradient().empty());
    EXPECT_TRUE(moe.LastTimeline(Phase::kTraining).empty());
  });
}

TEST(MoeLayerTest, MakeNamesWhatDoesNotBelongTogether) {
  const LayerPlan plan = ExpertParallelPlan();
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    const auto answer = [&](const LayerPlan& plan, const LayerWeights& weights, LayerGradients* gradients) {
      return MoeLayer::Make(plan, host.runtime(), weights, gradients).status().message();
    };
    LayerPlan eight_ranks = plan;
    eight_ranks.cluster.nodes = 4;
    EXPECT_EQ(
        answer(eight_ranks, weights, &gradients),
        "cluster: nodes · gpusPerNode is 8, but the job has 4 ranks; make the layer from a plan for this cluster");
    EXPECT_EQ(answer(plan, weights, nullptr),
              "gradients: found none, but the plan has a backward pass; give ZeroGradients(weights)");
    // One expert of 12 · 10 values.
    LayerWeights cut = weights;
    cut.experts.down.pop_back();
    EXPECT_EQ(answer(plan, cut, &gradients),
              "weights.experts.down: found 119 values, expected 120, as MakeWeights and ZeroGradients give them");
    EXPECT_EQ(answer(plan, WeightsOf(plan, (rank + 1) % kRanks, 1), &gradients),
              "weights.experts.shard: found another shard than ShardOf gives for this rank and layout");
    LayerPlan sharded = plan;
    sharded.workload.layout = {.expert_parallel = 2, .expert_sharding_parallel = 2};
    sharded.knobs.family = Family::kMontaO1;  // Wants ESP = MP.
    EXPECT_EQ(MoeLayer::Make(sharded, host.runtime(), weights, &gradients).status().code(), StatusCode::kInfeasible);
  });
}

TEST(MoeLayerTest, ARankThatFailsEndsTheCallsOfItsPeers) {
  const LayerPlan plan = ExpertParallelPlan();
  std::barrier all_made(kRanks);
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    MoeLayer moe = *MoeLayer::Make(plan, host.runtime(), weights, &gradients);
    Bytes rows(864);
    all_made.arrive_and_wait();
    if (rank == 3) host.device().Fail(Cancelled("rank 3 has had enough"));
    const Status status = moe.Forward(rows, rows);
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_NE(status.message().find("rank 3 has had enough"), std::string::npos) << status.message();
    EXPECT_EQ(moe.Forward(rows, rows), status);
  });
}

// ---- Gradients of dense layers.

// 1000 · rank, 1000 · rank + 1, ... up the slices.
void WriteGradients(MoeLayer& moe, int rank, const Layer& layer) {
  float value = 1000.0F * static_cast<float>(rank);
  for (const std::span<std::byte> slice : moe.dense_gradients()) {
    std::vector<float> values(slice.size() / layer.bytes_per_element);
    for (float& one : values) one = value++;
    Store(values.data(), ElementTypeOf(layer.bytes_per_element), values.size(), slice.data());
  }
}

// 400 bytes, 120 of them before the first collective between nodes of the backward pass, the others in two slices when
// all others are done.
LayerPlan PlanWithGradients(Family family) {
  LayerPlan plan = PlanOf(family);
  plan.workload.gradient_bytes = 400;
  const TaskGraph graph = *BuildSchedule(plan.knobs, *ResolveWorkload(plan.workload, plan.cluster), plan.cluster);
  const auto exchange = std::find_if(graph.tasks.begin() + graph.first_backward, graph.tasks.end(),
                                     [](const Task& task) { return task.stream == StreamKind::kInterNode; });
  plan.gradients.slices = {{.before_task = exchange->name, .bytes = 120},
                           {.after_task = graph.tasks.back().name, .bytes = 200},
                           {.bytes = 80}};
  return plan;
}

TEST(MoeLayerTest, SumsTheGradientsOfDenseLayersOverTheirReplicas) {
  for (const Family family : {Family::kBaseline, Family::kParmS1, Family::kMontaO3}) {
    const LayerPlan plan = PlanWithGradients(family);
    const Layer& layer = plan.workload.layer;
    OnEveryRank([&](HostRank& host, int rank) {
      const LayerWeights weights = WeightsOf(plan, rank, 1);
      LayerGradients gradients = ZeroGradients(weights);
      StatusOr<MoeLayer> moe = MoeLayer::Make(plan, host.runtime(), weights, &gradients);
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      for (int call = 0; call < 2; ++call) {
        SCOPED_TRACE(StrCat("rank ", rank, " call ", call));
        WriteGradients(*moe, rank, layer);
        RunAndCheck(*moe, plan, RowsOf(plan, rank, 1), 1);
        // MP groups are ranks 0, 1 and 2, 3: rank 3 has the place of rank 1.
        float place = 0;
        ASSERT_EQ(moe->dense_gradients().size(), 3u);
        for (const std::span<std::byte> slice : moe->dense_gradients()) {
          for (const float sum : RowFloatsOf(Bytes(slice.begin(), slice.end()), layer)) {
            ASSERT_EQ(sum, 2 * (1000.0F * static_cast<float>(rank % 2) + place++) + 2000);
          }
        }
        EXPECT_EQ(place, 100);
      }
    });
  }
}

TEST(MoeLayerTest, SlicesThatAreNotTheGradientsAreRefused) {
  OnEveryRank([&](HostRank& host, int rank) {
    LayerPlan plan = PlanWithGradients(Family::kParmS1);
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    plan.gradients.slices.pop_back();
    EXPECT_EQ(MoeLayer::Make(plan, host.runtime(), weights, &gradients).status().message(),
              "gradients.slices: found 320 bytes in all, expected 400, which is what the workload's gradientBytes have "
              "to exchange");
  });
}

}  // namespace
}  // namespace moeplan::executor
