// What is measured before steps of a model are priced: whatever pricing looks up, between what was measured.
#include "planner/layout/step_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "planner/layout/cost_book.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/step_time.h"
#include "tests/planner/small_layouts.h"

namespace moeplan::planner {
namespace {

constexpr Cluster kTwoNodes = {.nodes = 2, .gpus_per_node = 4};

std::map<CostKey, std::set<double>> SizesByKey(const std::vector<Need>& needs) {
  std::map<CostKey, std::set<double>> sizes;
  for (const Need& need : needs) EXPECT_TRUE(sizes[need.key].insert(need.size).second) << "twice";
  return sizes;
}

TEST(StepNeedsTest, EveryCostThatAStepLooksUpIsMeasuredAroundItsSize) {
  const auto needs = NeedsOfSteps(SmallModel(), kTwoNodes);
  ASSERT_TRUE(needs.ok()) << needs.status().message();
  const auto sizes = SizesByKey(*needs);
  LayoutRequest request = SmallRequest();
  request.sequence_length = kUsualSequence;
  request.global_batch = 32;
  request.zero_stage = 1;
  const Profile nothing = {.cluster = kTwoNodes};
  CostBook book(nothing, request.model.model_dim, request.bytes_per_element);
  CostBook::Asked asked;
  book.CountInto(&asked);
  int points = 0;
  for (const LayoutPoint& point : AllLayoutPoints(request, kTwoNodes)) {
    if (point.micro_batch > 4) continue;
    PriceStep(request, point, {}, book);
    ++points;
  }
  ASSERT_GT(points, 20);
  for (const auto& [what, count] : asked) {
    const auto& [key, size] = what;
    const auto* kernel = std::get_if<KernelKey>(&key);
    const auto found = sizes.find(key);
    // Half a sequence is priced between whole ones.
    const bool attention = kernel != nullptr && IsAttention(kernel->kernel);
    if (found == sizes.end()) {
      ADD_FAILURE_AT(__FILE__, __LINE__) << Describe(key) << " of " << size;
      continue;
    }
    EXPECT_LE(size, *found->second.rbegin() * 1.0001) << Describe(key);
    EXPECT_TRUE(attention || size >= *found->second.begin() / 1.0001) << Describe(key) << " of " << size;
  }
}

TEST(StepNeedsTest, SizesOfAKeyAreApartAndAttentionIsOfWholeSequences) {
  ModelConfig model = SmallModel();
  model.max_positions = 512;
  const auto needs = NeedsOfSteps(model, kTwoNodes);
  ASSERT_TRUE(needs.ok()) << needs.status().message();
  std::set<Kernel> kernels;
  std::set<int> sequences;
  for (const auto& [key, sizes] : SizesByKey(*needs)) {
    std::vector<double> ascending(sizes.begin(), sizes.end());
    for (size_t i = 1; i < ascending.size(); ++i) EXPECT_GT(ascending[i], ascending[i - 1] * 1.05) << Describe(key);
    // The end may be nearer.
    for (size_t i = 1; i + 1 < ascending.size(); ++i) EXPECT_GE(ascending[i], ascending[i - 1] * 4) << Describe(key);
    const auto* kernel = std::get_if<KernelKey>(&key);
    if (kernel == nullptr) continue;
    kernels.insert(kernel->kernel);
    EXPECT_TRUE(ValidateKernelKey(*kernel, "key").ok()) << Describe(key);
    if (!IsAttention(kernel->kernel)) continue;
    // The model's longest, and an eighth of it.
    sequences.insert(kernel->shape.sequence);
    const double one = 2.0 * kernel->shape.sequence * kernel->shape.sequence * kernel->shape.heads * 16;
    for (const double size : sizes) EXPECT_EQ(std::fmod(size, one), 0) << size;
  }
  EXPECT_EQ(sequences, (std::set<int>{64, 512}));
  for (const Kernel kernel : AllFrom(Kernel::kLinear)) {
    EXPECT_EQ(kernels.contains(kernel), IsOfTheRestOfAStep(kernel)) << Name(kernel);
  }
}

// Both local counts of experts that EP leaves, at the rows that the busiest rank may have.
TEST(StepNeedsTest, LocalExpertsAreMeasuredAsGroupedProducts) {
  const auto needs = NeedsOfSteps(SmallModel(), {.nodes = 1, .gpus_per_node = 2});
  ASSERT_TRUE(needs.ok()) << needs.status().message();
  std::set<int> experts;
  for (const auto& [key, sizes] : SizesByKey(*needs)) {
    const auto* kernel = std::get_if<KernelKey>(&key);
    if (kernel == nullptr || !IsLinear(kernel->kernel) || kernel->shape.experts == 1) continue;
    experts.insert(kernel->shape.experts);
    // Layouts and micro-batches differ by a factor of 64 in rows; their parts by as much again.
    EXPECT_GE(*sizes.rbegin() / *sizes.begin(), 64 * kMostExpertPart / kLeastExpertPart * 0.99) << Describe(key);
  }
  EXPECT_EQ(experts, (std::set<int>{4, 8}));
}

TEST(StepNeedsTest, NothingThatMovesMemoryIsMeasuredBeyondAGibibyte) {
  ModelConfig large = SmallModel();
  large.vocab = 1 << 24;  // Its optimizer passes over some GiB.
  const auto needs = NeedsOfSteps(large, {.nodes = 1, .gpus_per_node = 2});
  ASSERT_TRUE(needs.ok()) << needs.status().message();
  double most = 0;
  for (const Need& need : *needs) {
    const auto* kernel = std::get_if<KernelKey>(&need.key);
    if (kernel != nullptr && !CountsFlops(kernel->kernel)) most = std::max(most, need.size);
  }
  EXPECT_EQ(most, 1 << 30);
}

TEST(StepNeedsTest, WhatCannotFitIsLeftOutUnlessNothingFits) {
  const auto count = [](double device_memory_bytes) {
    Cluster cluster = kTwoNodes;
    cluster.device_memory_bytes = device_memory_bytes;
    const auto needs = NeedsOfSteps(SmallModel(), cluster);
    EXPECT_TRUE(needs.ok());
    return needs.ok() ? needs->size() : 0;
  };
  EXPECT_LT(count(2e7), count(0));
  EXPECT_EQ(count(1), count(0));
}

TEST(StepNeedsTest, ModelsThatHaveNoStepHereAreRefused) {
  ModelConfig model = SmallModel();
  model.encoder_layers = 2;
  EXPECT_EQ(NeedsOfSteps(model, kTwoNodes).status().code(), StatusCode::kUnimplemented);
}

TEST(StepNeedsTest, MergedNeedsAreEachOnceAndMostUsefulFirst) {
  const KernelKey norm = {.kernel = Kernel::kNorm}, copy = {.kernel = Kernel::kDeviceCopy};
  const std::vector<Need> merged =
      MergedNeeds({{norm, 8, 2}, {copy, 8, 1}}, {{norm, 16, 3}, {norm, 8, 5}, {copy, 16, 0.5}});
  EXPECT_EQ(merged, (std::vector<Need>{{norm, 16, 3}, {norm, 8, 2}, {copy, 8, 1}, {copy, 16, 0.5}}));
}

}  // namespace
}  // namespace moeplan::planner
