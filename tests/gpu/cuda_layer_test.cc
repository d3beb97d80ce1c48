// A layer of a job on a card by itself, beside the same layer on the host; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "executor/cuda/cuda_kernels.h"
#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/host/elements.h"
#include "executor/host/host_rank.h"
#include "executor/moe_layer.h"
#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

using ::testing::HasSubstr;

constexpr double kDeadlineS = 20;

std::unique_ptr<CudaRank> MakeRankAlone() {
  return *MakeCudaRank({}, [](CudaDevice& device) -> StatusOr<std::unique_ptr<PartExchange>> {
    return MakeInProcessExchange(std::move(MakeInProcessMeshes(1)[0]), device, kDeadlineS);
  });
}

LayerPlan PlanOf(GateKind gate, int matrices, int bytes_per_element) {
  return {.workload = {.layer = {.batch = 2,
                                 .sequence_length = 20,
                                 .model_dim = 16,
                                 .hidden_dim = 24,
                                 .experts = 4,
                                 .top_k = 2,
                                 .capacity_factor = 0.8,
                                 .bytes_per_element = bytes_per_element,
                                 .expert_matrices = matrices,
                                 .gate = gate,
                                 .expert_bias = true,
                                 .shared_hidden_dim = 6,
                                 .aux_loss_coefficient = 2,
                                 .z_loss_coefficient = 1},
                       .min_chunk_bytes = 1,
                       .phase = Phase::kTraining},
          .cluster = {.nodes = 1, .gpus_per_node = 1},
          .knobs = {.family = Family::kPipeline}};
}

// What lies on the card, or on the host.
std::vector<float> Read(Device& device, std::span<const float> values) {
  std::vector<float> read(values.size());
  const std::unique_ptr<Stream> stream = device.MakeStream("READ", StreamPriority::kNormal);
  device.Copy(reinterpret_cast<std::byte*>(read.data()), reinterpret_cast<const std::byte*>(values.data()),
              values.size_bytes(), *stream);
  EXPECT_TRUE(device.Synchronize().ok());
  return read;
}

// Output and input gradient of a step.
using StepResult = std::pair<std::vector<float>, std::vector<float>>;
StepResult Step(MoeLayer& moe, std::vector<float> input, std::vector<float> out_gradient) {
  const ElementType type = ElementTypeOf(moe.workload().layer.bytes_per_element);
  const auto run = [&](std::vector<float>& values, auto pass) {
    std::vector<std::byte> rows(values.size() * BytesOf(type));
    Store(values.data(), type, values.size(), rows.data());
    const Status status = pass(std::span<std::byte>(rows));
    EXPECT_TRUE(status.ok()) << status.message();
    Load(rows.data(), type, values.size(), values.data());
  };
  run(input, [&](auto rows) { return moe.Forward(rows, rows); });
  run(out_gradient, [&](auto rows) { return moe.Backward(rows, rows); });
  return {std::move(input), std::move(out_gradient)};
}

// What a job has of a layer on a rank.
struct JobLayer {
  JobLayer(const LayerPlan& plan, RankRuntime& runtime)
      : layer(plan.workload.layer),
        weights(MakeWeights(layer, ShardOf(layer, plan.workload.layout, 0), /*seed=*/3)),
        gradients(ZeroGradients(weights)),
        moe(*MoeLayer::Make(plan, runtime, weights, &gradients)) {}

  void ChangeWeights() {
    for (std::vector<float>* values : {&weights.gate, &weights.gate_bias, &weights.correction_bias, &weights.experts.up,
                                       &weights.experts.down_bias, &weights.shared.down, &weights.experts.gate_up}) {
      for (float& value : *values) value = RoundToBfloat16(-0.8F * value);
    }
  }

  const Layer layer;
  LayerWeights weights;
  LayerGradients gradients;
  MoeLayer moe;
};

// Relative to the largest value, for sums cancel.
void ExpectNear(std::span<const float> found, std::span<const float> expected, double tolerance, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance * largest) << what << " " << i;
}

void ExpectNear(const ExpertGradients& found, const ExpertGradients& expected, double tolerance, const char* what) {
  ExpectNear(found.up, expected.up, tolerance, what);
  ExpectNear(found.gate_up, expected.gate_up, tolerance, what);
  ExpectNear(found.down, expected.down, tolerance, what);
  ExpectNear(found.up_bias, expected.up_bias, tolerance, what);
  ExpectNear(found.gate_up_bias, expected.gate_up_bias, tolerance, what);
  ExpectNear(found.down_bias, expected.down_bias, tolerance, what);
}

// Steps of a layer on a card and on the host, whose job changes its weights.
void ExpectStepsOfTheHost(const LayerPlan& plan) {
  const double tolerance = plan.workload.layer.bytes_per_element == 4 ? 1e-5 : 3e-2;
  const std::unique_ptr<CudaRank> rank = MakeRankAlone();
  HostRank host(std::move(MakeInProcessMeshes(1)[0]), kDeadlineS);
  JobLayer on_card(plan, rank->runtime()), on_host(plan, host.runtime());
  for (int step = 0; step < 3 && !::testing::Test::HasFailure(); ++step) {
    SCOPED_TRACE(StrCat("step ", step));
    const auto input = MakeInput(on_host.layer, plan.workload.layout, step, /*seed=*/5);
    const auto out_gradient = MakeOutputGradient(on_host.layer, plan.workload.layout, step, /*seed=*/5);
    const StepResult found = Step(on_card.moe, input, out_gradient), expected = Step(on_host.moe, input, out_gradient);
    ExpectNear(found.first, expected.first, tolerance, "output");
    ExpectNear(found.second, expected.second, tolerance, "input gradient");
    const std::vector<float> gate_gradient = Read(rank->device(), on_card.moe.gate_gradient());
    EXPECT_EQ(gate_gradient.size(), GateGradientValues(plan.workload.layer));
    ExpectNear(gate_gradient, on_host.moe.gate_gradient(), tolerance, "gate gradient");
    ExpectNear(on_card.gradients.experts, on_host.gradients.experts, tolerance, "experts");
    ExpectNear(on_card.gradients.shared, on_host.gradients.shared, tolerance, "shared expert");
    EXPECT_EQ(on_card.moe.router_statistics()->kept, on_host.moe.router_statistics()->kept);
    on_card.ChangeWeights();
    on_host.ChangeWeights();
  }
  EXPECT_GT(rank->device().replays(), 0u);
}

TEST(CudaLayerTest, StepsFollowTheHostsWeightsAndAddToItsGradients) {
  for (const GateKind gate : {GateKind::kTopK, GateKind::kBatchPrioritized, GateKind::kExpertChoice, GateKind::kHash}) {
    for (const int bytes_per_element : {4, 2}) {
      SCOPED_TRACE(StrCat("gate ", static_cast<int>(gate), " bytes ", bytes_per_element));
      ExpectStepsOfTheHost(PlanOf(gate, gate == GateKind::kHash ? 2 : 3, bytes_per_element));
    }
  }
}

constexpr Router kDeepSeekV3 = {.score_function = ScoreFunction::kSigmoid,
                                .weight_scale = 2.5,
                                .expert_groups = 2,
                                .groups_per_token = 1,
                                .correction_bias = true};

TEST(CudaLayerTest, LayersOfPublishedModelsStepAsOnTheHost) {
  struct Model {
    std::string_view name;
    int top_k;
    Router router;
    double swiglu_limit = 0;
  };
  const Model models[] = {
      {"DeepSeek-V2", 2, {.raw_weights = true, .weight_scale = 4, .expert_groups = 2}},
      {"DeepSeek-V3", 2, kDeepSeekV3},
      {"GPT-OSS", 2, {.bias = true}, /*swiglu_limit=*/0.5},
      {"Llama 4", 1, {.score_function = ScoreFunction::kSigmoid, .raw_weights = true, .weighs_input = true}},
  };
  for (const Model& model : models) {
    for (const int bytes_per_element : {4, 2}) {
      SCOPED_TRACE(StrCat(model.name, " bytes ", bytes_per_element));
      LayerPlan plan = PlanOf(GateKind::kTopK, 3, bytes_per_element);
      Layer& layer = plan.workload.layer;
      layer.top_k = model.top_k;
      layer.router = model.router;
      // With BF16 none reach the limit: the card rounds once more than the host, and where one finds a value within the
      // limit and the other beyond, slopes have nothing in common.
      layer.swiglu_limit = bytes_per_element == 4 ? model.swiglu_limit : 14 * model.swiglu_limit;
      ExpectStepsOfTheHost(plan);
    }
  }
}

// Tensors of a job that keeps them on the card.
class TensorsOnCard {
 public:
  explicit TensorsOnCard(CudaDevice& device) : device_(device) {}

  const std::byte* Elements(const std::vector<float>& values, ElementType type) {
    std::vector<std::byte> elements(values.size() * BytesOf(type));
    Store(values.data(), type, values.size(), elements.data());
    return Keep(elements);
  }
  float* Floats(const std::vector<float>& values) {
    if (values.empty()) return nullptr;
    const auto bytes = std::as_bytes(std::span(values));
    return reinterpret_cast<float*>(Keep({bytes.begin(), bytes.end()}));
  }
  DeviceExperts Experts(const ExpertWeights& weights, ElementType type) {
    return {.up = Elements(weights.up, type),
            .gate_up = Elements(weights.gate_up, type),
            .down = Elements(weights.down, type),
            .up_bias = Floats(weights.up_bias),
            .gate_up_bias = Floats(weights.gate_up_bias),
            .down_bias = Floats(weights.down_bias)};
  }
  DeviceExpertGradients Gradients(const ExpertGradients& zero) {
    const auto matrix = [&](const std::vector<float>& values) { return reinterpret_cast<std::byte*>(Floats(values)); };
    return {.up = matrix(zero.up),
            .gate_up = matrix(zero.gate_up),
            .down = matrix(zero.down),
            .up_bias = Floats(zero.up_bias),
            .gate_up_bias = Floats(zero.gate_up_bias),
            .down_bias = Floats(zero.down_bias)};
  }
  ExpertGradients Read(const DeviceExpertGradients& from, const ExpertGradients& shape) {
    const auto read = [&](const void* data, const std::vector<float>& like) {
      return cuda::Read(device_, {static_cast<const float*>(data), like.size()});
    };
    return {read(from.up, shape.up),
            read(from.gate_up, shape.gate_up),
            read(from.down, shape.down),
            read(from.up_bias, shape.up_bias),
            read(from.gate_up_bias, shape.gate_up_bias),
            read(from.down_bias, shape.down_bias)};
  }

 private:
  std::byte* Keep(const std::vector<std::byte>& bytes) {
    return kept_.emplace_back(*device_.Upload(bytes.data(), bytes.size())).data();
  }

  CudaDevice& device_;
  std::vector<DeviceMemory> kept_;
};

TEST(CudaLayerTest, WeightsMayStayOnTheCard) {
  LayerPlan plan = PlanOf(GateKind::kTopK, 3, 2);
  plan.workload.layer.router = kDeepSeekV3;
  plan.workload.layer.router.bias = true;
  const std::unique_ptr<CudaRank> rank = MakeRankAlone();
  HostRank host(std::move(MakeInProcessMeshes(1)[0]), kDeadlineS);
  JobLayer on_host(plan, host.runtime());
  const LayerGradients zero = ZeroGradients(on_host.weights);
  const LayerShard shard = ShardOf(on_host.layer, plan.workload.layout, 0);
  TensorsOnCard tensors(rank->device());
  float* const gate = tensors.Floats(on_host.weights.gate);
  const DeviceWeights weights = {.gate = gate,
                                 .gate_bias = tensors.Floats(on_host.weights.gate_bias),
                                 .correction_bias = tensors.Floats(on_host.weights.correction_bias),
                                 .experts = tensors.Experts(on_host.weights.experts, ElementType::kBfloat16),
                                 .shared = tensors.Experts(on_host.weights.shared, ElementType::kBfloat16)};
  const DeviceGradients gradients = {tensors.Gradients(zero.experts), tensors.Gradients(zero.shared)};
  auto kernels = rank->kernels().Make(on_host.layer, shard, weights, &gradients);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  auto moe = MoeLayer::Make(plan, rank->runtime(), *std::move(kernels), MoeLayer::Options());
  ASSERT_TRUE(moe.ok()) << moe.status().message();
  for (int step = 0; step < 2; ++step) {
    SCOPED_TRACE(StrCat("step ", step));
    const auto input = MakeInput(on_host.layer, plan.workload.layout, step, /*seed=*/5);
    const auto out_gradient = MakeOutputGradient(on_host.layer, plan.workload.layout, step, /*seed=*/5);
    const StepResult found = Step(*moe, input, out_gradient), expected = Step(on_host.moe, input, out_gradient);
    ExpectNear(found.first, expected.first, 3e-2, "output");
    ExpectNear(found.second, expected.second, 3e-2, "input gradient");
    ExpectNear(tensors.Read(gradients.experts, zero.experts), on_host.gradients.experts, 3e-2, "experts");
    ExpectNear(tensors.Read(gradients.shared, zero.shared), on_host.gradients.shared, 3e-2, "shared expert");
    // The job changes what it has on the card, and nobody copies.
    for (float& value : on_host.weights.gate) value *= -0.5F;
    const std::unique_ptr<Stream> stream = rank->device().MakeStream("CHANGE", StreamPriority::kNormal);
    rank->device().Copy(reinterpret_cast<std::byte*>(gate),
                        reinterpret_cast<const std::byte*>(on_host.weights.gate.data()),
                        on_host.weights.gate.size() * sizeof(float), *stream);
    ASSERT_TRUE(rank->device().Synchronize().ok());
  }
}

TEST(CudaLayerTest, WhatHasNoKernelIsRefusedWithWhatToUse) {
  const std::unique_ptr<CudaRank> rank = MakeRankAlone();
  Layer layer = PlanOf(GateKind::kTopK, 3, 4).workload.layer;
  const LayerWeights weights = MakeWeights(layer, ShardOf(layer, {}, 0), /*seed=*/3);
  const KernelsFactory& make = rank->runtime().make_kernels();
  const auto kernels = make(layer, weights, nullptr);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  for (int built_in = 0; built_in < kBuiltIn<Codec>; ++built_in) {
    EXPECT_EQ((*kernels)->CheckCodec(static_cast<Codec>(built_in)), OkStatus()) << built_in;
  }
  const Status codec = (*kernels)->CheckCodec(static_cast<Codec>(kBuiltIn<Codec>));
  EXPECT_EQ(codec.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(codec.message(), HasSubstr("use the host backend"));

  layer.expert_kind = static_cast<ExpertKind>(static_cast<int>(ExpertKind::kFfn) + 1);
  const Status expert = make(layer, weights, nullptr).status();
  EXPECT_EQ(expert.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(expert.message(), HasSubstr("layer.expertKind"));
  EXPECT_THAT(expert.message(), HasSubstr("use the host backend"));
  layer.expert_kind = ExpertKind::kFfn;
  layer.experts = 100000;
  EXPECT_EQ(make(layer, weights, nullptr).status().code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace moeplan::executor::cuda
