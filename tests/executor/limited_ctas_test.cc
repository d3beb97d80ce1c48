// A plan that limits the CTAs of its collectives runs where communicators say that they can, and nowhere else.
#include <gtest/gtest.h>

#include "executor/host/host_kernels.h"
#include "executor/moe_layer.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::executor {
namespace {

// The host's communicator, said to limit CTAs. Counts collectives that are not limited to `expected_ctas`.
class LimitingCommunicator final : public Communicator {
 public:
  LimitingCommunicator(Communicator& host, int expected_ctas, int* unlimited)
      : host_(host), expected_ctas_(expected_ctas), unlimited_(unlimited) {}
  LimitingCommunicator(std::unique_ptr<Communicator> host, int ctas, const LimitingCommunicator& parent)
      : owned_(std::move(host)),
        host_(*owned_),
        ctas_(ctas),
        expected_ctas_(parent.expected_ctas_),
        unlimited_(parent.unlimited_) {}

  bool LimitsCtas() const override { return true; }
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    Count();
    host_.AllToAll(send, recv, stream);
  }
  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    host_.AllGather(send, recv, stream);
  }
  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    host_.ReduceScatter(send, recv, type, stream);
  }
  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    host_.AllReduce(send, recv, type, stream);
  }
  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    host_.SendRecv(sends, recvs, stream);
  }
  void SendRecv(std::function<void(Transfers&)> list, Stream& stream) override {
    host_.SendRecv(std::move(list), stream);
  }
  void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards, std::span<std::byte> gathered,
                         ElementType type, Communicator& gather, Stream& stream) override {
    host_.AllToAllAllGather(send, partial, shards, gathered, type, gather, stream);
  }
  void Barrier(Stream& stream) override { host_.Barrier(stream); }
  StatusOr<std::unique_ptr<Communicator>> Split(int color) override { return SplitLimited(color, ctas_); }
  StatusOr<std::unique_ptr<Communicator>> SplitLimited(int color, int ctas) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part, host_.Split(color));
    return std::unique_ptr<Communicator>(std::make_unique<LimitingCommunicator>(std::move(part), ctas, *this));
  }
  void Abort(const Status& why) override { host_.Abort(why); }

 private:
  void Count() {
    if (ctas_ != expected_ctas_) ++*unlimited_;
  }

  const std::unique_ptr<Communicator> owned_;
  Communicator& host_;
  const int ctas_ = 0, expected_ctas_;
  int* const unlimited_;
};

LayerPlan PlanWith(int ctas) {
  return {.workload = {.layer = {.batch = 2,
                                 .sequence_length = 8,
                                 .model_dim = 8,
                                 .hidden_dim = 8,
                                 .experts = 4,
                                 .top_k = 2,
                                 .capacity_factor = 1,
                                 .bytes_per_element = 4},
                       .layout = {.expert_parallel = 2},
                       .min_chunk_bytes = 1},
          .cluster = {.nodes = 2, .gpus_per_node = 1},
          .knobs = {.family = Family::kPipeline, .partition_degree = 2, .communication_ctas = ctas}};
}

Status ForwardOn(RankRuntime& runtime, const LayerPlan& plan) {
  const Layer& layer = plan.workload.layer;
  const LayerWeights weights = MakeWeights(layer, ShardOf(layer, plan.workload.layout, runtime.world().rank()), 1);
  ASSIGN_OR_RETURN(MoeLayer moe, MoeLayer::Make(plan, runtime, weights));
  std::vector<std::byte> rows(sizeof(float) * layer.batch * layer.sequence_length * layer.model_dim);
  return moe.Forward(rows, rows);
}

TEST(LimitedCtasTest, APlanWithALimitRunsWhereCommunicatorsLimit) {
  testing::RunRanks(2, [](const testing::Rank& rank) {
    for (const int ctas : {8, 0}) {
      int unlimited = 0;
      LimitingCommunicator world(rank.world, ctas, &unlimited);
      RankRuntime runtime(rank.device, world, MakeHostKernels);
      EXPECT_EQ(ForwardOn(runtime, PlanWith(ctas)), OkStatus());
      EXPECT_EQ(unlimited, 0) << "with " << ctas;
      EXPECT_EQ(ForwardOn(runtime, PlanWith(16)), OkStatus());
      EXPECT_GT(unlimited, 0) << "other limits are other groups";
    }
  });
}

TEST(LimitedCtasTest, ElsewhereItIsRefusedAndOneWithoutRuns) {
  testing::RunRanks(2, [](const testing::Rank& rank) {
    RankRuntime runtime(rank.device, rank.world, MakeHostKernels);
    EXPECT_EQ(ForwardOn(runtime, PlanWith(8)),
              InvalidInput("communicationCtas: found 8, expected 0, as the collectives of this backend have no CTAs to "
                           "limit; take a candidate with communicationCtas 0"));
    EXPECT_EQ(ForwardOn(runtime, PlanWith(0)), OkStatus());
  });
}

}  // namespace
}  // namespace moeplan::executor
