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

TEST(CalibrateTest, LimitsOnCtasAskForCommunicationOnceMoreAndForNothingElse) {
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 2};
  const std::vector<Measurement> plain = MeasurementsOfLayouts(cluster);
  const std::vector<Measurement> limited = WithCtaLimits(plain, {4, 16});
  size_t communication = 0;
  for (const Measurement& one : plain) {
    const bool beside = IsCommunication(ContentionOf(one.need.key));
    if (std::holds_alternative<CollectiveKey>(one.need.key) || beside) ++communication;
  }
  EXPECT_EQ(limited.size(), plain.size() + 2 * communication);
  std::set<std::pair<CostKey, double>> different;
  for (const Measurement& one : limited) different.emplace(one.need.key, one.need.size);
  EXPECT_EQ(different.size(), limited.size());
  std::set<int> limits;
  for (const Measurement& one : limited) {
    limits.insert(CtasOf(one.need.key));
    const auto* kernel = std::get_if<KernelKey>(&one.need.key);
    EXPECT_TRUE(kernel == nullptr || kernel->ctas == 0 || IsCommunication(kernel->contention));
  }
  EXPECT_EQ(limits, (std::set<int>{0, 4, 16}));
}

}  // namespace
}  // namespace moeplan
