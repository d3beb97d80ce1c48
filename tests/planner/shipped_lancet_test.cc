// Lancet's passes on models and hardware that ship.
#include <gtest/gtest.h>

#include <string>

#include "models/text.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/layout_rules.h"
#include "planner/shipped/names.h"

namespace moeplan::planner {
namespace {

constexpr int kSamples = 8;  // A micro-batch has so many, for as many parts.

struct Case {
  const char* model;
  const char* hardware;
  int gpus;
  Layout layout;
};

// Plans of some layers tell what those of all layers of a model gain: layers that are all alike, behind dense ones, or
// with windows in turns.
TEST(ShippedLancetTest, LayersThatRepeatGainAsMoreOfThemDo) {
  for (const Case& one : {Case{"mixtral-8x7b", "h100-sxm", 64, {.tensor_parallel = 4, .expert_parallel = 8}},
                          {"qwen3-30b-a3b", "h100-sxm", 64, {.expert_parallel = 32}},
                          {"qwen3-30b-a3b", "a100-sxm", 64, {.tensor_parallel = 2, .expert_parallel = 16}},
                          {"gpt-oss-20b", "a100-pcie", 32, {.expert_parallel = 16}},
                          {"deepseek-v3", "h100-sxm", 256, {.expert_parallel = 32}}}) {
    SCOPED_TRACE(StrCat(one.model, " on ", one.hardware));
    LayoutRequest request;
    request.model = *NamedModel(one.model);
    request.gpus = one.gpus;
    request.global_batch = kSamples * one.gpus;
    request.sequence_length = 4096;
    request.zero_stage = 1;
    auto profile = HardwareProfile(one.hardware, one.gpus, request.model);
    ASSERT_TRUE(profile.ok()) << profile.status().message();
    profile->cluster = ClusterOf(request, profile->cluster);
    Layout layout = one.layout;
    layout.data_parallel = 0;
    const auto point = PointOf(request, profile->cluster, layout, kSamples, /*horizontal_contexts=*/false);
    ASSERT_TRUE(point.ok()) << point.status().message();
    PriceNotes notes;
    const auto few = GainsOfStages(request, *point, *profile, notes);
    const auto whole = GainsOfStages(request, *point, *profile, notes, {}, request.model.layers());
    ASSERT_TRUE(few.ok() && whole.ok());
    EXPECT_GT(whole->front().ranges_s, 0);
    EXPECT_NEAR(few->front().ranges_s / whole->front().ranges_s, 1, 0.01);
    EXPECT_NEAR(few->front().weight_gradients_s, whole->front().weight_gradients_s, 0.01 * whole->front().ranges_s);
  }
}

}  // namespace
}  // namespace moeplan::planner
