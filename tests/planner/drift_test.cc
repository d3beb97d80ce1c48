#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "contract_files.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/drift/level_test.h"
#include "planner/drift/remeasure.h"
#include "planner/drift/run_ratios.h"
#include "planner/search/plan_layer.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using testing::HasSubstr;

// ---- The test of levels
// ----------------------------------------------------------------------------------------------

// How many observations until a shift is found; -1: not within `most`.
int FoundAfter(LevelTest test, int most, const std::function<double()>& observe) {
  for (int i = 1; i <= most; ++i) {
    if (test.Observe(observe())) return i;
  }
  return -1;
}

struct Noise {
  const char* name;
  std::function<double(std::mt19937_64&)> draw;
};

double Normal(std::mt19937_64& random, double mean, double deviation) {
  return std::normal_distribution<double>(mean, deviation)(random);
}

// Medians within the band of ±ln 1.15 = ±0.14.
const Noise kStationary[] = {
    {"a quiet machine", [](std::mt19937_64& random) { return Normal(random, 0, 0.02); }},
    {"a noisy machine", [](std::mt19937_64& random) { return Normal(random, 0.05, 0.3); }},
    {"a median just within the band", [](std::mt19937_64& random) { return Normal(random, 0.139, 0.05); }},
    {"a third of all ten times as long",
     [](std::mt19937_64& random) { return Normal(random, 0, 0.05) + (random() % 3 == 0 ? std::log(10) : 0); }},
    {"heavy tails", [](std::mt19937_64& random) { return std::cauchy_distribution<double>(0, 0.2)(random); }},
    {"two modes", [](std::mt19937_64& random) { return Normal(random, random() % 2 == 0 ? -0.2 : 0.2, 0.01); }},
};

TEST(LevelTest, StationaryNoiseRaisesFewerThanOneAlarmInAHundredRunsOfTenThousand) {
  std::mt19937_64 random(TestSeed());
  constexpr int kRuns = 300, kObservations = 10000;
  for (const Noise& noise : kStationary) {
    int alarms = 0;
    for (int run = 0; run < kRuns; ++run) {
      alarms += FoundAfter(LevelTest(), kObservations, [&] { return noise.draw(random); }) > 0;
    }
    EXPECT_LT(alarms, 0.01 * kRuns) << noise.name;
  }
}

TEST(LevelTest, AShiftBeyondTheBandIsFoundSoonEitherWay) {
  std::mt19937_64 random(TestSeed());
  for (const double ratio : {1.5, 1 / 1.5, 3.0}) {
    const int found = FoundAfter(LevelTest(), 1000, [&] { return Normal(random, std::log(ratio), 0.1); });
    EXPECT_GE(found, 25);
    EXPECT_LE(found, 40) << ratio;
  }
}

TEST(LevelTest, WhatFoundItIsCountedAndItsMedianTold) {
  LevelTest test;
  // Now beyond one side, now beyond the other: the shift that comes after is told by what speaks for it alone.
  for (int i = 0; i < 101; ++i) EXPECT_FALSE(test.Observe(i % 2 == 0 ? -0.2 : 0.2)) << i;
  for (int i = 1; i < 25; ++i) EXPECT_FALSE(test.Observe(std::log(1.5))) << i;
  const auto shift = test.Observe(std::log(1.5));
  ASSERT_TRUE(shift);
  EXPECT_EQ(shift->observations, 25);
  EXPECT_NEAR(shift->log_ratio, std::log(1.5), 1e-12);
  EXPECT_FALSE(test.Observe(std::log(1.5)));  // It begins anew.
}

TEST(LevelTest, AKnownLevelIsNoShiftAndLeavingItIs) {
  LevelTest test;
  test.MoveTo(std::log(1.5));
  EXPECT_EQ(FoundAfter(test, 1000, [] { return std::log(1.5); }), -1);
  EXPECT_EQ(FoundAfter(test, 1000, [] { return 0.0; }), 25);
}

// ---- Runs beside a profile
// -------------------------------------------------------------------------------------------

// The last entry of the profile on the resource, so that it does not come first by itself.
CostKey LastOn(const Profile& profile, Resource resource) {
  std::optional<CostKey> last;
  for (const CollectiveModel& entry : profile.collectives) {
    if (ResourceOf(entry.key) == resource) last = entry.key;
  }
  if (resource == Resource::kCompute) last = profile.kernels.front().key;
  EXPECT_TRUE(last);
  return *last;
}

class DriftTest : public testing::Test {
 protected:
  std::vector<Sample> Again(Resource resource) const {
    return OperationsOf(profile_, LastOn(profile_, resource), workload_, 10000);
  }

  const Profile profile_ = ExampleProfile();
  const Workload workload_ = *ResolveWorkload(ExampleWorkload(), profile_.cluster);
  const Plan plan_ = PlanLayer(workload_, profile_)->candidates.front();
};

TEST_F(DriftTest, ARunAsPredictedHasRatiosOfOne) {
  const auto run = CompareRun(plan_, workload_, profile_, std::vector<Timeline>{plan_.timeline});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_NEAR(run->predicted_s, plan_.predicted_time_s, 1e-12);
  EXPECT_NEAR(run->measured_s, plan_.predicted_time_s, 1e-12);
  ASSERT_GE(run->ratios.size(), 2U);
  for (const CostRatio& each : run->ratios) EXPECT_NEAR(each.log_ratio, 0, 1e-9) << Describe(each.key);
}

TEST_F(DriftTest, CollectivesCountTheRankThatCameLastAndKernelsTheMedian) {
  std::vector<Timeline> ranks(3, plan_.timeline);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (TaskTiming& timing : ranks[rank]) {
      const bool collective = timing.kind == TaskKind::kAllToAll || timing.kind == TaskKind::kAllGather;
      // Early ranks wait in a collective; one rank's kernels are far too slow.
      const double factor = collective ? (rank == 1 ? 1.5 : 4.0) : (rank == 0 ? 10.0 : 1.0);
      timing.end_s = timing.start_s + factor * (timing.end_s - timing.start_s);
    }
  }
  const auto run = CompareRun(plan_, workload_, profile_, ranks);
  ASSERT_TRUE(run.ok()) << run.status().message();
  for (const CostRatio& each : run->ratios) {
    EXPECT_NEAR(std::exp(each.log_ratio), ResourceOf(each.key) == Resource::kCompute ? 1.0 : 1.5, 1e-9)
        << Describe(each.key);
  }
}

TEST_F(DriftTest, AForeignTaskIsNamedWithItsPlace) {
  std::vector<Timeline> ranks = {plan_.timeline};
  ranks[0][1].task = "dreaming";
  const auto run = CompareRun(plan_, workload_, profile_, ranks);
  EXPECT_EQ(run.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(run.status().message(),
              HasSubstr("ranks[0].timeline[1].task: found dreaming, expected a task of the plan"));
  EXPECT_THAT(CompareRun(plan_, workload_, profile_, std::vector<Timeline>{{}}).status().message(),
              HasSubstr("found no measured task"));
}

// ---- Measuring again
// -------------------------------------------------------------------------------------------------

// What a cluster would measure that is `factor(key)` times as slow as the profile says.
std::vector<Sample> Measured(const Profile& profile, std::vector<Sample> operations,
                             const std::function<double(const CostKey&)>& factor) {
  for (Sample& sample : operations) {
    double bus_factor = 1;
    const CostModel* model = nullptr;
    if (const auto* collective = std::get_if<CollectiveKey>(&sample.key)) {
      bus_factor = BusFactor(collective->collective, collective->group.size);
      model = FindContended(profile, *collective);
    } else {
      model = FindContended(profile, std::get<KernelKey>(sample.key));
    }
    const double time_s = TimeS(model->curve, sample.size, bus_factor) * factor(sample.key);
    sample.times_s = {0.99 * time_s, time_s, 1.01 * time_s};
  }
  return operations;
}

TEST_F(DriftTest, AllOfAResourceIsMeasuredAgainAndNothingElse) {
  for (const Resource resource : {Resource::kInterNode, Resource::kIntraNode, Resource::kCompute}) {
    Profile profile = profile_;
    KernelModel foreign = profile.kernels.front();
    foreign.key = KeyOf(Kernel::kExpertGemm, workload_.layer, workload_.layout);
    foreign.key.model_dim = 7;  // No workload of ours.
    profile.kernels.push_back(foreign);
    const CostKey drifted = LastOn(profile, resource);
    const std::vector<Sample> operations = OperationsOf(profile, drifted, workload_, 10000);
    ASSERT_FALSE(operations.empty());
    EXPECT_EQ(operations.front().key, drifted);
    EXPECT_EQ(OperationsOf(profile, drifted, workload_, 1).size(), 1U);
    std::set<CostKey> keys;
    for (const Sample& each : operations) {
      EXPECT_EQ(ResourceOf(each.key), resource) << Describe(each.key);
      EXPECT_GT(each.size, 0);
      keys.insert(each.key);
    }
    size_t expected = 0;
    for (const CollectiveModel& entry : profile_.collectives) expected += ResourceOf(entry.key) == resource;
    for (const KernelModel& entry : profile_.kernels) expected += ResourceOf(entry.key) == resource;
    EXPECT_EQ(keys.size(), expected) << Name(resource);
  }
}

TEST_F(DriftTest, OfALineWithoutPointsItsUnitsUsualSizesAreMeasured) {
  // From 1024 bytes of rows, which cost 2048 flop each, to 17 Gflop, or 20 ms at the peak; bytes up to 64 MiB.
  Profile profile = profile_;
  profile.kernels.resize(1);
  profile.kernels[0].key = KeyOf(Kernel::kExpertGemm, workload_.layer, workload_.layout);
  profile.kernels[0].model = {.curve = AlphaBeta{.alpha_s = 1e-5, .beta_s_per_unit = 1e-13}};
  const auto ends = [&] {
    const auto sizes = OperationsOf(profile, profile.kernels[0].key, workload_, 10000);
    return sizes.empty() ? std::pair(0.0, 0.0) : std::pair(sizes.front().size, sizes.back().size);
  };
  profile.cluster.peak_flops_per_s = 0;
  EXPECT_EQ(ends(), std::pair(1024.0 * 2048, 1.7e10));
  profile.cluster.peak_flops_per_s = 1e12;
  EXPECT_EQ(ends(), std::pair(1024.0 * 2048, 2e10));
  profile.cluster.peak_flops_per_s = 1e15;  // Rows of 64 MiB are the most.
  EXPECT_EQ(ends(), std::pair(1024.0 * 2048, 67108864.0 * 2048));
  profile.kernels[0].key = KeyOf(Kernel::kGate, workload_.layer, workload_.layout);
  EXPECT_EQ(ends(), std::pair(1024.0, 67108864.0));
}

TEST_F(DriftTest, ACurveOfOnePointIsMeasuredAgainThereAlone) {
  Profile profile = profile_;
  profile.kernels.resize(1);
  profile.kernels[0].key = KeyOf(Kernel::kGate, workload_.layer, workload_.layout);
  profile.kernels[0].model = MakeCostModel(LogLog{{{49152, 2.4e-5}}});
  const std::vector<Sample> operations = OperationsOf(profile, profile.kernels[0].key, workload_, 10000);
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].size, 49152);
}

TEST_F(DriftTest, WhatMovedIsFittedAnewAndTheRestStays) {
  const auto slow = [](const CostKey& key) { return ResourceOf(key) == Resource::kInterNode ? 1.5 : 1.02; };
  std::vector<Sample> samples = Measured(profile_, Again(Resource::kInterNode), slow);
  const std::vector<Sample> others = Measured(profile_, Again(Resource::kIntraNode), slow);
  samples.insert(samples.end(), others.begin(), others.end());
  const auto renewed = Renew(profile_, samples);
  ASSERT_TRUE(renewed.ok()) << renewed.status().message();
  ASSERT_FALSE(renewed->moved.empty());
  for (const MovedCost& each : renewed->moved) {
    EXPECT_EQ(ResourceOf(each.key), Resource::kInterNode) << Describe(each.key);
    EXPECT_NEAR(each.ratio, 1.5, 0.01);
  }
  for (size_t i = 0; i < profile_.collectives.size(); ++i) {
    const CollectiveModel &before = profile_.collectives[i], &after = renewed->profile.collectives[i];
    if (ResourceOf(before.key) != Resource::kInterNode) {
      EXPECT_EQ(after, before);
      continue;
    }
    const double bus_factor = BusFactor(before.key.collective, before.key.group.size);
    for (const double bytes : {1e6, 1e7}) {
      EXPECT_NEAR(TimeS(after.model.curve, bytes, bus_factor) / TimeS(before.model.curve, bytes, bus_factor), 1.5, 0.1)
          << Describe(before.key) << " at " << bytes;
    }
  }
  EXPECT_EQ(renewed->profile.kernels, profile_.kernels);
}

TEST_F(DriftTest, ACostThatWasNotMeasuredAtAllSizesIsNotJudged) {
  std::vector<Sample> samples = Measured(profile_, Again(Resource::kInterNode), [](const CostKey&) { return 2.0; });
  const CostKey cut_short = samples.back().key;
  samples.pop_back();
  const auto renewed = Renew(profile_, samples);
  ASSERT_TRUE(renewed.ok());
  for (const MovedCost& each : renewed->moved) EXPECT_NE(each.key, cut_short);
  EXPECT_EQ(std::ranges::count(renewed->judged, cut_short), 0);
  EXPECT_EQ(renewed->judged.size(), renewed->moved.size());
  EXPECT_FALSE(renewed->moved.empty());
}

TEST_F(DriftTest, WhatIsAsBeforeStays) {
  const auto renewed =
      Renew(profile_, Measured(profile_, Again(Resource::kInterNode), [](const CostKey&) { return 1.05; }));
  ASSERT_TRUE(renewed.ok());
  EXPECT_TRUE(renewed->moved.empty());
  EXPECT_FALSE(renewed->judged.empty());
  EXPECT_EQ(renewed->profile, profile_);
}

}  // namespace
}  // namespace moeplan::planner
