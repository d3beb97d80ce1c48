// Which measurements a grid of workloads asks for, without ranks.
#include "agent/calibrate.h"

#include <gtest/gtest.h>

#include <set>

#include "models/extension/extension.h"

namespace moeplan {
namespace {

struct Cubed {
  static constexpr int kMatrices = 2;
  template <typename T>
  static T Hidden(T up, T) {
    return up * up * up;
  }
  template <typename T>
  static T UpSlope(T up, T) {
    return 3 * up * up;
  }
  template <typename T>
  static T GateUpSlope(T, T) {
    return 0;
  }
};

TEST(CalibrateTest, ExpertsOfTwoKindsAreMeasuredEachOnItsOwn) {
  const auto cubed = RegisterExpert<Cubed>("CUBED");
  ASSERT_TRUE(cubed.ok()) << cubed.status().message();
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 2};
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 32,
                    .hidden_dim = 32,
                    .experts = 2,
                    .top_k = 1,
                    .capacity_factor = 1,
                    .shared_hidden_dim = 16};
  workload.layout = {.expert_parallel = 2};
  workload.phase = Phase::kTraining;
  const Workload ffn = *ResolveWorkload(workload, cluster);
  workload.layer.expert_kind = *cubed;
  const Workload own = *ResolveWorkload(workload, cluster);

  std::set<std::string> measured;
  for (const Measurement& measurement : MeasurementsOf({ffn, own}, cluster)) {
    const auto* kernel = std::get_if<KernelKey>(&measurement.need.key);
    if (kernel == nullptr || !CountsFlops(kernel->kernel)) continue;
    measured.emplace(Name(kernel->kernel));
    EXPECT_EQ(measurement.context.layer.expert_kind, ExpertKindOf(kernel->kernel)) << Name(kernel->kernel);
  }
  EXPECT_EQ(measured, (std::set<std::string>{"EXPERT_GEMM", "EXPERT_INPUT_GRADIENT", "EXPERT_WEIGHT_GRADIENT",
                                             "EXPERT_GEMM_CUBED", "EXPERT_INPUT_GRADIENT_CUBED",
                                             "EXPERT_WEIGHT_GRADIENT_CUBED"}));
}

}  // namespace
}  // namespace moeplan
