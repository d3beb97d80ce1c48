// Two micro-batches of a layer at once, each on a lane, on four ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <string>
#include <vector>

#include "executor/host/host_stream.h"
#include "executor/training_layer.h"
#include "models/workload/names.h"
#include "tests/executor/example_layer.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;

constexpr Family kFamilies[] = {Family::kBaseline, Family::kBaselineTp, Family::kParmS1,
                                Family::kParmS2,   Family::kMontaO1,    Family::kMontaO2,
                                Family::kMontaO3,  Family::kPipeline,   Family::kOncePerNode};

// A micro-batch of a rank, and what the layer made of it.
struct MicroBatch {
  MicroBatch(const LayerPlan& plan, int rank, uint64_t seed)
      : layer(plan.workload.layer),
        rows(RowsOf(plan, rank, seed)),
        weights(WeightsOf(plan, rank, /*seed=*/1)),
        gradients(ZeroGradients(weights)),
        gate_gradient(weights.gate.size()),
        there(RowBytesOf(rows.input, layer)),
        back(RowBytesOf(rows.output_gradient, layer)) {}

  int Tokens() const { return static_cast<int>(rows.input.size()) / layer.model_dim; }
  TrainingLayer::Pass Forward(TrainingLayer& moe, Lane lane) {
    auto pass = moe.Forward(Tokens(), there, there, weights, lane);
    MOEPLAN_CHECK(pass.ok());
    return *std::move(pass);
  }
  Status Backward(TrainingLayer::Pass& pass) { return pass.Backward(back, back, &gradients, gate_gradient); }

  void ExpectAlike(const MicroBatch& other) const {
    EXPECT_EQ(there, other.there);
    EXPECT_EQ(back, other.back);
    EXPECT_EQ(gate_gradient, other.gate_gradient);
    EXPECT_EQ(gradients.experts.up, other.gradients.experts.up);
    EXPECT_EQ(gradients.experts.down_bias, other.gradients.experts.down_bias);
    EXPECT_EQ(gradients.shared.down, other.gradients.shared.down);
  }

  const Layer layer;
  const Rows rows;
  const LayerWeights weights;
  LayerGradients gradients;
  std::vector<float> gate_gradient;
  Bytes there, back;
};

// Runs the same micro-batch in line.
MicroBatch InLine(TrainingLayer& moe, const LayerPlan& plan, int rank, uint64_t seed) {
  MicroBatch batch(plan, rank, seed);
  TrainingLayer::Pass pass = batch.Forward(moe, Lane::kInLine);
  EXPECT_EQ(batch.Backward(pass), OkStatus());
  return batch;
}

LayerPlan Dropless(LayerPlan plan) {
  plan.workload.layer.capacity_factor = 0;
  return plan;
}

TEST(LanesTest, MicroBatchesOnLanesAreThoseInLine) {
  for (const Family family : kFamilies) {
    for (const LayerPlan& plan : {PlanOf(family), PlanOf(family, /*bytes_per_element=*/2), Dropless(PlanOf(family))}) {
      SCOPED_TRACE(std::string(Name(family)));
      OnEveryRank([&](HostRank& host, int rank) {
        const auto moe = TrainingLayer::Make(plan, host.runtime());
        ASSERT_TRUE(moe.ok()) << moe.status().message();
        for (uint64_t seed = 1; seed < 4; ++seed) {
          MicroBatch one(plan, rank, seed), two(plan, rank, seed + 10);
          TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst), second = two.Forward(**moe, Lane::kSecond);
          EXPECT_EQ(first.Finish(), OkStatus());
          EXPECT_EQ(one.Backward(first), OkStatus());
          EXPECT_EQ(second.Finish(), OkStatus());
          EXPECT_EQ(two.Backward(second), OkStatus());
          EXPECT_EQ(second.Finish(), OkStatus());
          EXPECT_EQ(first.Finish(), OkStatus());
          EXPECT_FALSE(first.LastTimeline(Phase::kTraining).empty());
          one.ExpectAlike(InLine(**moe, plan, rank, seed));
          two.ExpectAlike(InLine(**moe, plan, rank, seed + 10));
        }
      });
    }
  }
}

TEST(LanesTest, HalvesOfBackwardPassesRunOnLanes) {
  const LayerPlan plan = PlanOf(Family::kMontaO2);
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    MicroBatch one(plan, rank, 1), two(plan, rank, 2);
    TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst);
    EXPECT_EQ(first.Finish(), OkStatus());
    EXPECT_EQ(first.BackwardOfInput(one.back, one.back, one.gate_gradient), OkStatus());
    TrainingLayer::Pass second = two.Forward(**moe, Lane::kSecond);
    EXPECT_EQ(first.AddWeightGradients(&one.gradients), OkStatus());
    EXPECT_EQ(first.Finish(), OkStatus());
    EXPECT_EQ(two.Backward(second), OkStatus());
    EXPECT_EQ(second.Finish(), OkStatus());
    one.ExpectAlike(InLine(**moe, plan, rank, 1));
    two.ExpectAlike(InLine(**moe, plan, rank, 2));
  });
}

// Holds up what is queued on a stream until it is let go.
class Gate {
 public:
  explicit Gate(Stream& stream) {
    HostStream::Of(stream).Enqueue([open = open_.get_future().share()] {
      constexpr std::chrono::seconds kMost{20};
      return open.wait_for(kMost) == std::future_status::ready ? OkStatus() : InternalError("nobody opened");
    });
  }
  void Open() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

TEST(LanesTest, ALaneThatIsHeldUpHoldsUpNoOther) {
  for (const LayerPlan& plan : {PlanOf(Family::kMontaO2), Dropless(PlanOf(Family::kPipeline))}) {
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      {
        // Communicators are made.
        MicroBatch one(plan, rank, 1), two(plan, rank, 2);
        TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst), second = two.Forward(**moe, Lane::kSecond);
      }
      MicroBatch one(plan, rank, 1), two(plan, rank, 2);
      TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst);
      EXPECT_EQ(first.Finish(), OkStatus());
      Gate gate(host.runtime().streams(Lane::kFirst)[StreamKind::kCompute]);
      EXPECT_EQ(one.Backward(first), OkStatus());
      TrainingLayer::Pass second = two.Forward(**moe, Lane::kSecond);
      EXPECT_EQ(second.Finish(), OkStatus());
      EXPECT_EQ(two.Backward(second), OkStatus());
      EXPECT_EQ(second.Finish(), OkStatus());
      EXPECT_EQ(one.back, RowBytesOf(one.rows.output_gradient, one.layer)) << "nothing has come back yet";
      gate.Open();
      EXPECT_EQ(first.Finish(), OkStatus());
      one.ExpectAlike(InLine(**moe, plan, rank, 1));
      two.ExpectAlike(InLine(**moe, plan, rank, 2));
    });
  }
}

// Two parts of a source batch, the first ten rows and the rest, each on a lane, and the same in line.
struct Parts {
  Parts(TrainingLayer& moe, MicroBatch& of, bool on_lanes) : batch(of), parts(of.Tokens()) {
    for (const int part : {0, 1}) {
      const Lane lane = !on_lanes ? Lane::kInLine : part == 0 ? Lane::kFirst : Lane::kSecond;
      auto pass = moe.Forward(part == 0 ? kFirst : of.Tokens() - kFirst, Rows(batch.there, part),
                              Rows(batch.there, part), batch.weights, parts, lane);
      MOEPLAN_CHECK(pass.ok());
      passes.push_back(*std::move(pass));
    }
  }

  std::span<std::byte> Rows(Bytes& rows, int part) const {
    const size_t first = rows.size() / batch.Tokens() * kFirst;
    return part == 0 ? std::span(rows).first(first) : std::span(rows).subspan(first);
  }
  Status Finish(int part) { return passes[part].Finish(); }
  Status Backward(int part) {
    return passes[part].Backward(Rows(batch.back, part), Rows(batch.back, part), &batch.gradients, batch.gate_gradient);
  }

  static constexpr int kFirst = 10;
  MicroBatch& batch;
  BatchInParts parts;
  std::vector<TrainingLayer::Pass> passes;
};

TEST(LanesTest, PartsOnLanesAreThoseInLine) {
  for (const Family family : kFamilies) {
    LayerPlan with_losses = PlanOf(family);
    with_losses.workload.layer.aux_loss_coefficient = 0.1;
    for (const LayerPlan& plan : {PlanOf(family), with_losses, Dropless(PlanOf(family))}) {
      SCOPED_TRACE(std::string(Name(family)));
      OnEveryRank([&](HostRank& host, int rank) {
        const auto moe = TrainingLayer::Make(plan, host.runtime());
        ASSERT_TRUE(moe.ok()) << moe.status().message();
        for (uint64_t seed = 1; seed < 4; ++seed) {
          MicroBatch on_lanes(plan, rank, seed), in_line(plan, rank, seed);
          {
            Parts parts(**moe, on_lanes, /*on_lanes=*/true);
            for (const int part : {0, 1}) EXPECT_EQ(parts.Finish(part), OkStatus());
            for (const int part : {1, 0}) {
              EXPECT_EQ(parts.Backward(part), OkStatus());
              EXPECT_EQ(parts.Finish(part), OkStatus()) << "both add to the same gradients";
            }
          }
          Parts parts(**moe, in_line, /*on_lanes=*/false);
          for (const int part : {1, 0}) EXPECT_EQ(parts.Backward(part), OkStatus());
          on_lanes.ExpectAlike(in_line);
        }
      });
    }
  }
}

TEST(LanesTest, APartWhoseRowsAreHeldUpHoldsUpNoOther) {
  const LayerPlan plan = ExpertParallelPlan();
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    {
      // Communicators are made.
      MicroBatch one(plan, rank, 1), two(plan, rank, 2);
      TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst), second = two.Forward(**moe, Lane::kSecond);
    }
    MicroBatch batch(plan, rank, 1), in_line(plan, rank, 1);
    RankStreams& streams = host.runtime().streams(Lane::kFirst);
    Gate gate(streams[StreamKind::kIntraNode]);
    Parts parts(**moe, batch, /*on_lanes=*/true);
    EXPECT_EQ(parts.Finish(1), OkStatus());
    const std::span<const std::byte> held = parts.Rows(batch.there, 0);
    EXPECT_TRUE(std::ranges::equal(held, parts.Rows(in_line.there, 0))) << "nothing has come back yet";
    gate.Open();
    EXPECT_EQ(parts.Finish(0), OkStatus());
    Parts expected(**moe, in_line, /*on_lanes=*/false);
    EXPECT_EQ(batch.there, in_line.there);
  });
}

TEST(LanesTest, APassThatGoesHasDoneWhatWasQueued) {
  const LayerPlan plan = ExpertParallelPlan();
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    MicroBatch one(plan, rank, 1);
    {
      TrainingLayer::Pass pass = one.Forward(**moe, Lane::kSecond);
      EXPECT_EQ(one.Backward(pass), OkStatus());
    }
    one.ExpectAlike(InLine(**moe, plan, rank, 1));
  });
}

TEST(LanesTest, AnErrorOfOneLaneIsThatOfTheNextCallsOfAll) {
  const LayerPlan plan = ExpertParallelPlan();
  // An error on one rank ends what is under way on every other.
  std::latch all_forward(kRanks);
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    MicroBatch one(plan, rank, 1), two(plan, rank, 2);
    TrainingLayer::Pass first = one.Forward(**moe, Lane::kFirst), second = two.Forward(**moe, Lane::kSecond);
    EXPECT_EQ(first.Finish(), OkStatus());
    EXPECT_EQ(second.Finish(), OkStatus());
    all_forward.arrive_and_wait();
    HostStream::Of(host.runtime().streams(Lane::kFirst)[StreamKind::kCompute]).Enqueue([] {
      return InternalError("a kernel is broken");
    });
    (void)one.Backward(first);
    EXPECT_FALSE(first.Finish().ok());
    EXPECT_FALSE(two.Backward(second).ok());
    EXPECT_FALSE(moe.value()->Forward(18, one.there, one.there, one.weights).ok());
  });
}

}  // namespace
}  // namespace moeplan::executor
