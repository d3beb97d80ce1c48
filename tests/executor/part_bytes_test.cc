// How many bytes the parts of a source batch send, on four ranks as threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "executor/host/mesh.h"
#include "executor/training_layer.h"
#include "models/text.h"
#include "models/workload/names.h"
#include "tests/executor/example_layer.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;

// Counts the bytes of messages that are no signals.
class CountingMesh final : public Mesh {
 public:
  CountingMesh(std::unique_ptr<Mesh> mesh, std::atomic<int64_t>& bytes) : mesh_(std::move(mesh)), bytes_(bytes) {}

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  int JobRank(int peer) const override { return mesh_->JobRank(peer); }
  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return mesh_->Receive(peer, tag, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    bytes_ += static_cast<int64_t>(bytes.size());
    return mesh_->Send(peer, tag, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer, std::span<std::byte> bytes) override {
    return mesh_->ReceiveSignal(peer, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer, std::span<const std::byte> bytes) override {
    return mesh_->SendSignal(peer, bytes);
  }
  StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline deadline) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> made, mesh_->SubMesh(members, deadline));
    return std::unique_ptr<Mesh>(std::make_unique<CountingMesh>(std::move(made), bytes_));
  }
  void Abort(const Status& why) override { mesh_->Abort(why); }
  Status failure() const override { return mesh_->failure(); }

 private:
  const std::unique_ptr<Mesh> mesh_;
  std::atomic<int64_t>& bytes_;
};

// Bytes that all ranks send in a forward pass of `parts` parts. Tokens lean towards the expert `hot` unless that is -1.
int64_t BytesSent(const LayerPlan& plan, int parts, int hot = -1) {
  std::atomic<int64_t> bytes = 0;
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(kRanks);
  const auto run = [&](HostRank& host) {
    const int rank = host.world().rank();
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    Rows rows = RowsOf(plan, rank, /*seed=*/1);
    const LayerWeights weights = WeightsOf(plan, rank, /*seed=*/1);
    if (hot >= 0) LeanTowards(hot, plan.workload.layer, weights, rows.input);
    Bytes there = RowBytesOf(rows.input, plan.workload.layer);
    const int tokens = static_cast<int>(rows.input.size()) / plan.workload.layer.model_dim;
    const size_t row = there.size() / tokens;
    BatchInParts batch(tokens);
    for (int part = 0; part < parts; ++part) {
      const int first = tokens * part / parts, end = tokens * (part + 1) / parts;
      const std::span<std::byte> mine = std::span(there).subspan(first * row, (end - first) * row);
      const auto pass = parts == 1 ? (*moe)->Forward(tokens, mine, mine, weights)
                                   : (*moe)->Forward(end - first, mine, mine, weights, batch);
      EXPECT_TRUE(pass.ok()) << pass.status().message();
    }
  };
  testing::RunHostRanks(
      kRanks, [&](int rank) { return std::make_unique<CountingMesh>(std::move(meshes[rank]), bytes); }, run);
  return bytes;
}

TEST(PartBytesTest, PartsSendTheSlotsThatTheyTake) {
  const Layout in_slices = PlanOf(Family::kBaseline).workload.layout, one_expert_each = {.expert_parallel = 4};
  for (const auto& [family, layout] : {std::pair(Family::kBaseline, in_slices),
                                       {Family::kParmS1, in_slices},
                                       {Family::kParmS1, one_expert_each},
                                       {Family::kParmS2, in_slices},
                                       {Family::kPipeline, in_slices}}) {
    SCOPED_TRACE(StrCat(Name(family), " TP ", layout.tensor_parallel));
    LayerPlan plan = PlanOf(family);
    plan.workload.layout = layout;
    plan.workload.layer.capacity_factor = 1.25;
    plan.workload.layer.batch *= 16;
    plan.workload.layer.model_dim *= 4;  // So that numbers that go ahead of rows are few beside them.
    const int64_t whole = BytesSent(plan, 1), halves = BytesSent(plan, 2), quarters = BytesSent(plan, 4);
    EXPECT_GT(whole, 0);
    EXPECT_LT(static_cast<double>(halves), 1.1 * static_cast<double>(whole));
    EXPECT_LT(static_cast<double>(quarters), 1.1 * static_cast<double>(whole));
  }
}

// Padded slots of the busiest expert would be those of all.
TEST(PartBytesTest, RowsAloneFollowAnUnevenRouter) {
  LayerPlan plan = ExpertParallelPlan();
  plan.knobs.family = Family::kParmS1;
  plan.workload.layer.batch *= 16;
  plan.workload.layer.model_dim *= 4;
  const int64_t whole = BytesSent(plan, 1, /*hot=*/2), quarters = BytesSent(plan, 4, /*hot=*/2);
  EXPECT_LT(static_cast<double>(quarters), 1.1 * static_cast<double>(whole));
}

}  // namespace
}  // namespace moeplan::executor
