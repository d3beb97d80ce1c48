// The order in which ranks send: in pairs, and the next chunk of an all-to-all before the last has arrived.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "executor/host/host_kernels.h"
#include "executor/host/mesh_operation.h"
#include "executor/moe_layer.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::executor {
namespace {

uint64_t ExchangeOf(uint64_t tag) { return tag >> 20; }

// It keeps whom one rank has sent to over a mesh, and in which exchanges.
class Sent {
 public:
  void Add(int peer, uint64_t tag) {
    const std::lock_guard lock(mutex_);
    peers_.push_back(peer);
    exchanges_.insert(ExchangeOf(tag));
    changed_.notify_all();
  }
  std::vector<int> peers() const {
    const std::lock_guard lock(mutex_);
    return peers_;
  }
  // Whether a later exchange than `exchange` begins before long.
  bool AwaitLaterThan(uint64_t exchange) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return *exchanges_.rbegin() > exchange; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> peers_;
  std::set<uint64_t> exchanges_;
};

// Lets the wait for a transfer wait for something else first.
class HeldTransfer final : public PendingTransfer {
 public:
  HeldTransfer(std::unique_ptr<PendingTransfer> transfer, std::function<void()> hold)
      : transfer_(std::move(transfer)), hold_(std::move(hold)) {}
  Status Wait(Deadline deadline) override {
    hold_();
    return transfer_->Wait(deadline);
  }

 private:
  std::unique_ptr<PendingTransfer> transfer_;
  std::function<void()> hold_;
};

// Writes down what is sent. With `overtaken`, the first exchange of a mesh split from it arrives only once the rank has
// begun the next: true if that happens.
class WatchedMesh final : public Mesh {
 public:
  WatchedMesh(std::unique_ptr<Mesh> mesh, Sent* sent, bool* overtaken, bool holds = false)
      : mesh_(std::move(mesh)), sent_(sent), overtaken_(overtaken), holds_(holds) {}

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  int JobRank(int peer) const override { return mesh_->JobRank(peer); }
  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PendingTransfer> transfer, mesh_->Receive(peer, tag, bytes));
    if (!std::exchange(holds_, false)) return transfer;
    return std::make_unique<HeldTransfer>(
        std::move(transfer), [this, exchange = ExchangeOf(tag)] { *overtaken_ = own_.AwaitLaterThan(exchange); });
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    own_.Add(peer, tag);
    if (sent_ != nullptr) sent_->Add(peer, tag);
    return mesh_->Send(peer, tag, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer, std::span<std::byte> bytes) override {
    return mesh_->ReceiveSignal(peer, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer, std::span<const std::byte> bytes) override {
    return mesh_->SendSignal(peer, bytes);
  }
  StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline deadline) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> part, mesh_->SubMesh(members, deadline));
    return std::make_unique<WatchedMesh>(std::move(part), nullptr, overtaken_, overtaken_ != nullptr);
  }
  void Abort(const Status& why) override { mesh_->Abort(why); }
  Status failure() const override { return mesh_->failure(); }

 private:
  std::unique_ptr<Mesh> mesh_;
  Sent own_;
  Sent* sent_;
  bool* overtaken_;
  bool holds_;
};

// In each step, whom a rank of `size` sends to; ranks that have nobody in a step are left out.
std::vector<std::vector<int>> PeersInOrder(int size) {
  std::vector<Sent> sent(size);
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      WatchedMesh mesh(std::move(meshes[rank]), &sent[rank], nullptr);
      std::vector<std::byte> out(size), in(size);
      MeshOperation operation(mesh, "test");
      operation.Begin(/*sequence=*/1, DeadlineIn(20));
      EXPECT_EQ(operation.Exchange(EqualParts(out, size), EqualParts(in, size)), OkStatus());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<std::vector<int>> peers;
  for (const Sent& of_rank : sent) peers.push_back(of_rank.peers());
  return peers;
}

TEST(ExchangeOrderTest, RanksOfANodeSendToDifferentRanksOfAnotherNode) {
  constexpr int kRanksPerNode = 2;
  for (const int size : {4, 8, 16}) {
    const std::vector<std::vector<int>> peers = PeersInOrder(size);
    for (int step = 0; step < size - 1; ++step) {
      std::set<int> receivers;
      for (int rank = 0; rank < size; ++rank) {
        const int peer = peers[rank][step];
        receivers.insert(peer);
        EXPECT_EQ(peer / kRanksPerNode == rank / kRanksPerNode, peers[0][step] / kRanksPerNode == 0)
            << "of " << size << " ranks some are done with their node in step " << step << " and others are not";
      }
      EXPECT_EQ(receivers.size(), size) << "two of " << size << " ranks send to one in step " << step;
    }
  }
}

TEST(ExchangeOrderTest, EveryRankIsSentToWhateverTheirNumber) {
  for (const int size : {1, 2, 3, 5, 6, 7}) {
    for (const std::vector<int>& peers : PeersInOrder(size)) {
      EXPECT_EQ(std::set<int>(peers.begin(), peers.end()).size(), size - 1) << size << " ranks";
      EXPECT_EQ(peers.size(), size - 1) << size << " ranks";
    }
  }
}

TEST(ExchangeOrderTest, AChunkIsOnItsWayBeforeTheOneAheadHasArrived) {
  constexpr int kRanks = 2;
  const LayerPlan plan = {.workload = {.layer = {.batch = 2,
                                                 .sequence_length = 8,
                                                 .model_dim = 8,
                                                 .hidden_dim = 8,
                                                 .experts = 4,
                                                 .top_k = 2,
                                                 .capacity_factor = 1,
                                                 .bytes_per_element = 4},
                                       .layout = {.expert_parallel = kRanks},
                                       .min_chunk_bytes = 1},
                          .cluster = {.nodes = kRanks, .gpus_per_node = 1},
                          .knobs = {.family = Family::kPipeline, .partition_degree = 2}};
  std::array<bool, kRanks> overtaken = {};
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(kRanks);
  testing::RunRanks(
      kRanks,
      [&](int rank) -> std::unique_ptr<Mesh> {
        return std::make_unique<WatchedMesh>(std::move(meshes[rank]), nullptr, &overtaken[rank]);
      },
      [&](const testing::Rank& rank) {
        RankRuntime runtime(rank.device, rank.world, MakeHostKernels);
        const Layer& layer = plan.workload.layer;
        const LayerWeights weights = MakeWeights(layer, ShardOf(layer, plan.workload.layout, rank.rank), 1);
        auto moe = MoeLayer::Make(plan, runtime, weights);
        ASSERT_TRUE(moe.ok()) << moe.status().message();
        std::vector<std::byte> rows(sizeof(float) * layer.batch * layer.sequence_length * layer.model_dim);
        EXPECT_EQ(moe->Forward(rows, rows), OkStatus());
      });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(overtaken[rank]) << "rank " << rank;
}

}  // namespace
}  // namespace moeplan::executor
