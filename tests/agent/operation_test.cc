// What a layer needs measured, and that each of it can be.
#include "agent/operation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "agent/calibrate.h"
#include "agent/operation_buffers.h"
#include "executor/host/host_rank.h"
#include "executor/router_statistics.h"
#include "models/measurement/cost_key.h"
#include "models/measurement/needs.h"

namespace moeplan::agent {
namespace {

constexpr Cluster kTwoRanks = {.nodes = 1, .gpus_per_node = 2};

Workload WithSharedExpert(GateKind gate) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 16,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1,
                    .gate = gate,
                    .expert_bias = true,
                    .shared_hidden_dim = 12};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2};
  return *ResolveWorkload(workload, kTwoRanks);
}

TEST(OperationTest, EveryKernelThatALayerNeedsCanBeMeasured) {
  for (const GateKind gate : {GateKind::kTopK, GateKind::kExpertChoice, GateKind::kRandom}) {
    const Workload workload = WithSharedExpert(gate);
    const std::vector<Measurement> measurements = MeasurementsOf({workload}, kTwoRanks);
    EXPECT_EQ(measurements.size(), NeedsOf({workload}, kTwoRanks).size());
    executor::HostRank rank(std::move(executor::MakeInProcessMeshes(1)[0]), /*deadline_s=*/10);
    const auto stream = rank.device().MakeStream("measure", executor::StreamPriority::kNormal);
    std::map<int, int> gemms_by_hidden;
    for (const Measurement& one : measurements) {
      const auto* key = std::get_if<KernelKey>(&one.need.key);
      if (key == nullptr) continue;
      const auto operation = MakeKernel(*key, one.need.size, rank, one.context);
      ASSERT_TRUE(operation.ok()) << operation.status().message();
      (*operation)->Enqueue(*stream);
      EXPECT_TRUE(rank.device().Synchronize().ok()) << Describe(*key);
      if (key->kernel == Kernel::kExpertGemm) ++gemms_by_hidden[*key->hidden_dim];
    }
    EXPECT_GT(gemms_by_hidden[16], 0);  // An expert's, uncut.
    EXPECT_GT(gemms_by_hidden[6], 0);   // The shared one's, cut over MP.
  }
}

TEST(OperationTest, BuffersAreKnownBeforehand) {
  // Sent and received, of 4·100 bytes rounded up to 16.
  CollectiveKey key = {.collective = Collective::kAllToAll, .group = {4, 2}};
  EXPECT_EQ(OperationBytes(key, 400, {}), 800);
  EXPECT_EQ(OperationBytes(key, 401, {}), 832);
  // The gather of an SAA: half of what is received, by two shards, from two ranks.
  key = {.collective = Collective::kAllToAllAllGather, .group = {4, 4}, .gather_group_size = 2, .shards = 2};
  EXPECT_EQ(OperationBytes(key, 3200, {}), 3 * 3200);

  // 12 rows through each of 2 experts of 2 · 2 · 8 · 16 flops a row, 16 bytes each: rows in and out, and as many tokens
  // by k = 2, with 12 bytes for each of their 24 pairs, and the sums of 4 experts. Back also 24 · 16 columns, twice.
  const Workload workload = WithSharedExpert(GateKind::kTopK);
  KernelKey gemm = KeyOf(Kernel::kExpertGemm, workload.layer, workload.layout);
  const double sums_bytes = executor::RouterSums::Count(4) * sizeof(double);
  const double forward_bytes = 2 * 24 * 16 + 12 * 16 + 24 * 12 + sums_bytes;
  EXPECT_EQ(OperationBytes(gemm, 24.0 * 2 * 2 * 8 * 16, workload), forward_bytes);
  gemm.kernel = Kernel::kExpertInputGradient;
  EXPECT_EQ(OperationBytes(gemm, 24.0 * 2 * 2 * 8 * 16, workload), forward_bytes + 2 * 24 * 16 * 2);
  EXPECT_TRUE(std::isinf(OperationBytes(gemm, 1e300, workload)));
}

}  // namespace
}  // namespace moeplan::agent
