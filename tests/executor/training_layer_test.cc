// A layer as a training job has it, on four ranks as threads: passes under way in any order, halves of backward passes,
// fewer tokens, and ranks whose plans differ.
#include "executor/training_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "models/plan/build_plan.h"
#include "models/text.h"
#include "tests/executor/example_layer.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;

constexpr Family kFamilies[] = {Family::kBaseline, Family::kBaselineTp, Family::kParmS1,  Family::kParmS2,
                                Family::kMontaO1,  Family::kMontaO2,    Family::kMontaO3, Family::kPipeline};

// One call of a rank, made with `seed`: what goes in, what came out, and what the reference says.
struct Call {
  Call(const LayerPlan& plan, int rank, uint64_t seed)
      : layer(plan.workload.layer),
        weights(WeightsOf(plan, rank, seed)),
        gradients(ZeroGradients(weights)),
        gate_gradient(weights.gate.size()),
        rows(RowsOf(plan, rank, seed)),
        reference(ReferenceOf(plan, rows, seed)),
        there(RowBytesOf(rows.input, layer)),
        back(RowBytesOf(rows.output_gradient, layer)) {}

  TrainingLayer::Pass Forward(TrainingLayer& moe) {
    const int tokens = static_cast<int>(rows.input.size()) / layer.model_dim;
    auto pass = moe.Forward(tokens, there, there, weights);
    MOEPLAN_CHECK(pass.ok());
    ExpectClose(RowFloatsOf(there, layer), reference.forward.output, reference.forward.largest_magnitude, layer,
                "output");
    return *std::move(pass);
  }
  void ExpectInputGradient() const {
    const ReferenceGradients& expected = reference.gradients;
    ExpectClose(RowFloatsOf(back, layer), expected.input.values, expected.input.largest_magnitude, layer,
                "input gradient");
    ExpectClose(gate_gradient, expected.gate.values, expected.gate.largest_magnitude, layer, "gate gradient");
  }
  void Backward(TrainingLayer::Pass& pass) {
    EXPECT_EQ(pass.Backward(back, back, &gradients, gate_gradient), OkStatus());
    ExpectInputGradient();
  }

  const Layer layer;
  const LayerWeights weights;
  LayerGradients gradients;
  std::vector<float> gate_gradient;
  const Rows rows;
  const Reference reference;
  Bytes there, back;
};

// Every rank's gradients of a call, of which the test compares sums.
class Gathered {
 public:
  void Add(int rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    by_rank_[rank] = call.gradients.experts;
  }
  // The sum of a tensor over the ranks that hold the shard of `rank` (which differ by a multiple of EP·ESP ranks).
  std::vector<float> Sum(int rank, const Layout& layout, std::vector<float> ExpertGradients::*tensor) const {
    const int stride = layout.expert_parallel * layout.expert_sharding_parallel;
    std::vector<float> sum((by_rank_[rank].*tensor).size());
    for (int other = rank % stride; other < kRanks; other += stride) {
      std::ranges::transform(sum, by_rank_[other].*tensor, sum.begin(), std::plus<>());
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  ExpertGradients by_rank_[kRanks];
};

// The rank's part of the reference's gradient of "up", which is [E][M][H]; its sum over all source batches.
void ExpectUpGradients(const Gathered& found, const LayerPlan& plan, uint64_t seed) {
  const Layer& layer = plan.workload.layer;
  const Layout& layout = plan.workload.layout;
  ReferenceExpertGradients expected;
  for (int rank = 0; rank < kRanks; rank += layout.tensor_parallel) {
    expected += ReferenceOf(plan, RowsOf(plan, rank, seed), seed).gradients.experts;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const ExpertShard shard = ShardOf(layer, layout, rank).experts;
    std::vector<double> own;
    for (int row = 0; row < shard.experts * layer.model_dim; ++row) {
      const double* first = expected.up.values.data() +
                            (static_cast<size_t>(shard.first_expert) * layer.model_dim + row) * layer.hidden_dim +
                            shard.first_hidden;
      own.insert(own.end(), first, first + shard.hidden);
    }
    ExpectClose(found.Sum(rank, layout, &ExpertGradients::up), own, expected.up.largest_magnitude, layer, "up");
  }
}

TEST(TrainingLayerTest, PassesUnderWayGoBackInAnyOrder) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    const LayerPlan plan = PlanOf(family);
    Gathered first, second, third;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call one(plan, rank, 1), two(plan, rank, 2), three(plan, rank, 3);
      {
        TrainingLayer::Pass pass_one = one.Forward(**moe), pass_two = two.Forward(**moe);
        two.Backward(pass_two);
        TrainingLayer::Pass pass_three = three.Forward(**moe);
        one.Backward(pass_one);
        three.Backward(pass_three);
      }
      // Forward for nobody, then again on the same buffers.
      Call again(plan, rank, 2);
      { TrainingLayer::Pass dropped = again.Forward(**moe); }
      Call last(plan, rank, 1);
      TrainingLayer::Pass pass = last.Forward(**moe);
      last.Backward(pass);
      first.Add(rank, one);
      second.Add(rank, two);
      third.Add(rank, last);
    });
    ExpectUpGradients(first, plan, 1);
    ExpectUpGradients(second, plan, 2);
    ExpectUpGradients(third, plan, 1);
  }
}

TEST(TrainingLayerTest, WeightGradientsMayComeLaterThanOtherPasses) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    const LayerPlan plan = PlanOf(family);
    Gathered first, second;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call one(plan, rank, 1), two(plan, rank, 2);
      TrainingLayer::Pass pass_one = one.Forward(**moe), pass_two = two.Forward(**moe);
      for (const auto& [call, pass] : {std::pair{&one, &pass_one}, std::pair{&two, &pass_two}}) {
        EXPECT_EQ(pass->BackwardOfInput(call->back, call->back, call->gate_gradient), OkStatus());
        call->ExpectInputGradient();
        EXPECT_TRUE(std::ranges::all_of(call->gradients.experts.up, [](float value) { return value == 0; }));
        EXPECT_TRUE(pass->LastTimeline(Phase::kBackward).empty());
      }
      EXPECT_EQ(pass_two.AddWeightGradients(&two.gradients), OkStatus());
      EXPECT_EQ(pass_one.AddWeightGradients(&one.gradients), OkStatus());
      EXPECT_EQ(pass_one.AddWeightGradients(&one.gradients).code(), StatusCode::kInvalidInput);
      EXPECT_FALSE(pass_one.LastTimeline(Phase::kBackward).empty());
      first.Add(rank, one);
      second.Add(rank, two);
    });
    ExpectUpGradients(first, plan, 1);
    ExpectUpGradients(second, plan, 2);
  }
}

LayerPlan WithTokens(LayerPlan plan, int tokens) {
  plan.workload.layer.batch = 1;
  plan.workload.layer.sequence_length = tokens;
  return plan;
}

TEST(TrainingLayerTest, FewerTokensHaveTheCapacityOfSoMany) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    LayerPlan plan = PlanOf(family);  // 18 tokens.
    if (family == Family::kMontaO2 || family == Family::kMontaO3) plan.knobs.chunks = 3;
    if (family == Family::kPipeline) plan.knobs.partition_degree = 2;
    Gathered few;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      for (const int tokens : {18, 1, 7, 18, 7}) {
        SCOPED_TRACE(StrCat(tokens, " tokens"));
        Call call(WithTokens(plan, tokens), rank, 5);
        TrainingLayer::Pass pass = call.Forward(**moe);
        call.Backward(pass);
        if (tokens == 7) few.Add(rank, call);
      }
    });
    ExpectUpGradients(few, WithTokens(plan, 7), 5);
  }
}

TEST(TrainingLayerTest, APlanOfAnyPhaseTrains) {
  LayerPlan plan = PlanOf(Family::kMontaO3);
  plan.knobs.chunks = 2;
  const auto resolved = ResolveWorkload(plan.workload, plan.cluster);
  ASSERT_TRUE(resolved.ok());
  const auto graph = BuildPlan({.knobs = plan.knobs}, *resolved, plan.cluster);
  ASSERT_TRUE(graph.ok());
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kTraining}) {
    SCOPED_TRACE(static_cast<int>(phase));
    LayerPlan planned = plan;
    planned.workload.phase = phase;
    planned.workload.min_chunk_bytes = 1e9;  // Nobody searches here.
    const TaskRange range = TasksOf(*graph, phase);
    for (TaskId id = range.first; id < range.end; ++id) planned.order.push_back(graph->tasks[id].name);
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(planned, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call call(plan, rank, 1);
      TrainingLayer::Pass pass = call.Forward(**moe);
      call.Backward(pass);
      std::set<std::string> tasks;
      for (const TaskTiming& timing : pass.LastTimeline(phase)) tasks.insert(timing.task);
      EXPECT_EQ(tasks, std::set<std::string>(planned.order.begin(), planned.order.end()));
    });
  }
}

TEST(TrainingLayerTest, RanksWithOtherPlansAreToldApart) {
  OnEveryRank([&](HostRank& host, int rank) {
    LayerPlan plan = PlanOf(Family::kParmS2);
    if (rank == 2) plan.workload.layer.top_k = 1;
    if (rank == 3) plan.knobs.family = Family::kParmS1;
    EXPECT_EQ(TrainingLayer::Make(plan, host.runtime()).status(),
              InvalidInput("layer.topK: found 1 on rank 2, expected 2, as on rank 0; make the layer from the same plan "
                           "on every rank"));
    // Nor does a rank without a plan leave the others waiting.
    const StatusOr<LayerPlan> none =
        rank == 1 ? StatusOr<LayerPlan>(NotFound("no file")) : StatusOr<LayerPlan>(PlanOf(Family::kParmS2));
    const Status told = TrainingLayer::Make(none, host.runtime()).status();
    EXPECT_EQ(told, rank == 1
                        ? NotFound("no file")
                        : InvalidInput("plan: found none on rank 1 (no file), expected the same plan on every rank"));
    // And the job goes on.
    const auto moe = TrainingLayer::Make(PlanOf(Family::kParmS2), host.runtime());
    ASSERT_TRUE(moe.ok());
    Call call(PlanOf(Family::kParmS2), rank, 1);
    TrainingLayer::Pass pass = call.Forward(**moe);
    call.Backward(pass);
  });
}

TEST(TrainingLayerTest, WrongCallsAreRefused) {
  const LayerPlan plan = PlanOf(Family::kParmS1);
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok());
    Call call(plan, rank, 1);
    const auto refused = [&](int tokens, size_t bytes) {
      return (*moe)->Forward(tokens, std::span(call.there).first(bytes), call.there, call.weights).status().message();
    };
    EXPECT_EQ(refused(19, 0),
              "tokens: found 19, expected 1 to 18, the layer's batch · sequenceLength / contextParallel");
    EXPECT_EQ(refused(18, 4).substr(0, 36), "input: found 4 bytes, expected 864: ");
    TrainingLayer::Pass pass = call.Forward(**moe);
    EXPECT_EQ(pass.Backward(call.back, call.back, &call.gradients, {}).code(), StatusCode::kInvalidInput);
    LayerGradients other = call.gradients;
    other.experts.up.pop_back();
    Call next(plan, rank, 2);
    TrainingLayer::Pass next_pass = next.Forward(**moe);
    EXPECT_EQ(next_pass.Backward(next.back, next.back, &other, next.gate_gradient).message().substr(0, 21),
              "gradients.experts.up:");
    next.Backward(next_pass);  // Nothing was lost.
  });
}

}  // namespace
}  // namespace moeplan::executor
