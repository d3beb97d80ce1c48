// What a layer needs measured, and that each of it can be.
#include "agent/operation.h"

#include <gtest/gtest.h>

#include <map>

#include "agent/calibrate.h"
#include "executor/host/host_rank.h"
#include "models/measurement/needs.h"

namespace moeplan {
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
    HostRank rank(std::move(MakeInProcessMeshes(1)[0]), /*deadline_s=*/10);
    const auto stream = rank.device().MakeStream("measure", StreamPriority::kNormal);
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

}  // namespace
}  // namespace moeplan
