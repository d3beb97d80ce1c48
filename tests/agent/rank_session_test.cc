// Four sessions as two nodes of two ranks, commanded as a coordinator does.
#include "agent/rank_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "executor/backends.h"
#include "models/all_to_all/algorithm.h"
#include "proto/convert/plan.h"
#include "proto/convert/samples.h"
#include "proto/convert/workload.h"

namespace moeplan::agent {
namespace {

using ::testing::HasSubstr;

constexpr int kNodes = 2, kRanksPerNode = 2, kRanks = kNodes * kRanksPerNode;

class TwoNodesTest : public ::testing::Test {
 protected:
  TwoNodesTest() {
    for (int rank = 0; rank < kRanks; ++rank)
      sessions_.push_back(RankSession::Make("127.0.0.1", executor::FindBackend));
    const std::vector<v1::RankReply> started = Call([](int rank, v1::RankCommand& command) {
      command.mutable_start()->set_rank(rank);
      command.mutable_start()->set_nodes(kNodes);
      command.mutable_start()->set_ranks_per_node(kRanksPerNode);
      command.mutable_start()->set_deadline_s(30);
      command.mutable_start()->set_backend("host");
    });
    CallWithoutError([&](int, v1::RankCommand& command) {
      for (const v1::RankReply& reply : started) command.mutable_connect()->add_addresses(reply.started().address());
    });
  }

  // Every rank answers `command`, at the same time.
  std::vector<v1::RankReply> Call(const std::function<void(int rank, v1::RankCommand& command)>& write) {
    std::vector<v1::RankReply> replies(kRanks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        v1::RankCommand command;
        write(rank, command);
        replies[rank] = sessions_[rank]->Handle(command);
      });
    }
    threads.clear();
    return replies;
  }

  std::vector<v1::RankReply> CallWithoutError(const std::function<void(int rank, v1::RankCommand& command)>& write) {
    std::vector<v1::RankReply> replies = Call(write);
    for (const v1::RankReply& reply : replies) EXPECT_FALSE(reply.has_error()) << reply.error().message();
    return replies;
  }

  std::vector<v1::RankReply> Measure(const CollectiveKey& key, double bytes) {
    return Call([&](int, v1::RankCommand& command) {
      *command.mutable_measure()->mutable_what() =
          ToProto(Sample{.key = key, .size = bytes, .times_s = {}, .provenance = {}});
      command.mutable_measure()->set_repeats(3);
    });
  }

 private:
  std::vector<std::unique_ptr<RankSession>> sessions_;
};

CollectiveKey Over(AllToAllAlgorithm algorithm, GroupShape group) {
  return {.collective = Collective::kAllToAll, .algorithm = algorithm, .group = group};
}

TEST_F(TwoNodesTest, MeasuresEveryAllToAllAlgorithm) {
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    for (const v1::RankReply& reply : Measure(Over(algorithm, {kRanks, kRanksPerNode}), 4096)) {
      ASSERT_FALSE(reply.has_error()) << reply.error().message();
      ASSERT_EQ(reply.measured().time_s_size(), 3);
      for (const double time_s : reply.measured().time_s()) EXPECT_GT(time_s, 0);
    }
  }
}

TEST_F(TwoNodesTest, RefusesToMeasureAnAlgorithmWhereItIsDirect) {
  for (const v1::RankReply& reply : Measure(Over(AllToAllAlgorithm::kPipe, {kRanksPerNode, kRanksPerNode}), 4096)) {
    EXPECT_THAT(reply.error().message(), HasSubstr("PIPE needs a group over several nodes"));
  }
}

// MP 2 and ESP 2 inside nodes, EP 2 between them.
Workload SmallWorkload() {
  Workload given;
  given.layer = {.batch = 1,
                 .sequence_length = 24,
                 .model_dim = 16,
                 .hidden_dim = 16,
                 .experts = 4,
                 .top_k = 2,
                 .capacity_factor = 0.8,
                 .bytes_per_element = 4};
  given.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  const auto workload = ResolveWorkload(given, {.nodes = kNodes, .gpus_per_node = kRanksPerNode});
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  return *workload;
}

void AskToPrepare(const Knobs& knobs, v1::RankCommand& command) {
  *command.mutable_prepare()->mutable_workload() = ToProto(SmallWorkload());
  *command.mutable_prepare()->mutable_plan() = ToProto(Plan{.knobs = knobs});
}

// S1 exchanges counted rows over all four ranks, and dumps.
TEST_F(TwoNodesTest, RunsAPlanByEveryAlgorithm) {
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    SCOPED_TRACE(Name(algorithm));
    CallWithoutError([&](int, v1::RankCommand& command) {
      AskToPrepare({.family = Family::kParmS1, .all_to_all = algorithm}, command);
    });
    CallWithoutError([](int, v1::RankCommand& command) { command.mutable_run()->set_graph(0); });
    for (const v1::RankReply& reply :
         CallWithoutError([](int, v1::RankCommand& command) { command.mutable_check()->set_graph(0); })) {
      ASSERT_EQ(reply.checked().deviations_size(), 1);  // Of the output.
      const auto& deviation = reply.checked().deviations(0);
      EXPECT_GT(deviation.largest_reference(), 0);
      EXPECT_LE(deviation.largest_error(), 1e-5 * deviation.largest_reference());
    }
  }
}

// Output, input gradient and the gate's gradient, which has that of the router's bias behind it.
TEST_F(TwoNodesTest, ComparesBothPassesOfALayerWithARouter) {
  Workload workload = SmallWorkload();
  workload.phase = Phase::kTraining;
  workload.layer.router = {.score_function = ScoreFunction::kSigmoid,
                           .weight_scale = 2.5,
                           .expert_groups = 2,
                           .groups_per_token = 1,
                           .correction_bias = true,
                           .bias = true};
  CallWithoutError([&](int, v1::RankCommand& command) {
    *command.mutable_prepare()->mutable_workload() = ToProto(workload);
    *command.mutable_prepare()->mutable_plan() = ToProto(Plan{.knobs = {.family = Family::kParmS1}});
  });
  CallWithoutError([](int, v1::RankCommand& command) { command.mutable_run()->set_graph(0); });
  for (const v1::RankReply& reply :
       CallWithoutError([](int, v1::RankCommand& command) { command.mutable_check()->set_graph(0); })) {
    ASSERT_EQ(reply.checked().deviations_size(), 3);
    for (const auto& deviation : reply.checked().deviations()) {
      EXPECT_GT(deviation.largest_reference(), 0);
      EXPECT_LE(deviation.largest_error(), 2e-5 * deviation.largest_reference());
    }
  }
}

// O1 exchanges over EP, which has one rank on each node.
TEST_F(TwoNodesTest, RefusesAPlansAlgorithmWhereItIsDirect) {
  const auto prepare = [](int, v1::RankCommand& command) {
    AskToPrepare({.family = Family::kMontaO1, .all_to_all = AllToAllAlgorithm::kHier2d}, command);
  };
  for (const v1::RankReply& reply : Call(prepare)) {
    EXPECT_THAT(reply.error().message(), HasSubstr("HIER_2D needs a group over several nodes"));
  }
}

}  // namespace
}  // namespace moeplan::agent
