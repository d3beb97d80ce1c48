#include "db/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <limits>
#include <set>
#include <thread>

#include "models/text.h"
#include "tests/db/random_values.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

#ifdef MOEPLAN_SANITIZED
constexpr bool kSanitized = true;  // Ten and more times slower.
#else
constexpr bool kSanitized = false;
#endif

// Starts at 2026-01-31T23:59:58Z (1,769,903,998 s after 1970) and goes on by a second at every look.
StoreOptions SteppingClock() {
  auto next = std::make_shared<system_clock::time_point>(seconds(1769903998));  // Shared by the copies of the function.
  return {.now = [next] { return std::exchange(*next, *next + seconds(1)); }};
}

Profile AsStored(Profile profile, const ProfileVersion& version) {
  profile.version = version.version;
  profile.created_at = version.created_at;
  return profile;
}

class StoreTest : public testing::Test {
 protected:
  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db", SteppingClock());
};

TEST_F(StoreTest, ProfileReadsBackAsSaved) {
  const Profile profile = SmallProfile("a");
  const ProfileVersion version = Must(store_.SaveProfile(profile));
  EXPECT_EQ(version, (ProfileVersion{"a", 1, "2026-01-31T23:59:58Z"}));
  EXPECT_EQ(Must(store_.LoadProfile()), AsStored(profile, version));
  // A bare alphaBeta has no upper end.
  EXPECT_EQ(Must(store_.LoadProfile()).kernels[0].model.size_high, std::numeric_limits<double>::infinity());
}

TEST_F(StoreTest, RandomProfilesReadBackAsSavedAlsoFromAnotherConnection) {
  RandomValues random(TestSeed());
  for (int i = 0; i < 60; ++i) {
    const std::string name = StrCat("profile ", i, random.Text());
    const Profile profile = random.AnyProfile(name);
    const ProfileVersion version = Must(store_.SaveProfile(profile));
    EXPECT_EQ(Must(store_.LoadProfile({.name = name})), AsStored(profile, version)) << "profile " << i;
    const Store other = MustOpen(folder_ / "store.db");
    EXPECT_EQ(Must(other.LoadProfile({.name = name, .version = 1})), AsStored(profile, version)) << "profile " << i;
  }
}

TEST_F(StoreTest, EveryKeyNameReadsBack) {
  Profile profile = SmallProfile("names");
  const CostModel model = profile.kernels[0].model;
  profile.kernels.clear();
  profile.collectives.clear();
  for (const Kernel kernel : AllFrom(Kernel::kDeviceCopy)) {
    if (!IsOfTheRestOfAStep(kernel)) profile.kernels.push_back({{.kernel = kernel}, model});
  }
  for (int collective = 0; collective <= static_cast<int>(Collective::kAllToAllAllGather); ++collective) {
    CollectiveKey key = {.collective = static_cast<Collective>(collective)};
    if (key.collective == Collective::kAllToAllAllGather) key.gather_group_size = key.shards = 2;
    profile.collectives.push_back({key, model});
  }
  for (int algorithm = 1; algorithm <= static_cast<int>(AllToAllAlgorithm::kPipe); ++algorithm) {
    profile.collectives.push_back({{.algorithm = static_cast<AllToAllAlgorithm>(algorithm)}, model});
  }
  for (int contention = 1; contention <= static_cast<int>(Contention::kWithExpertGemm); ++contention) {
    profile.collectives.push_back({{.contention = static_cast<Contention>(contention)}, model});
  }
  const ProfileVersion version = Must(store_.SaveProfile(profile));
  EXPECT_EQ(Must(store_.LoadProfile()), AsStored(profile, version));
}

TEST_F(StoreTest, ARefitIsANewVersionAndTheOldOneStays) {
  const Profile first = SmallProfile("a");
  Profile second = first;
  second.kernels[0].model = MakeCostModel(AlphaBeta{5e-6, 2e-12});
  const ProfileVersion version_1 = Must(store_.SaveProfile(first));
  const ProfileVersion version_2 = Must(store_.SaveProfile(second));
  EXPECT_EQ(version_2.version, 2);
  EXPECT_EQ(version_2.created_at, "2026-01-31T23:59:59Z");
  EXPECT_EQ(Must(store_.LoadProfile({.name = "a", .version = 1})), AsStored(first, version_1));
  EXPECT_EQ(Must(store_.LoadProfile({.name = "a"})), AsStored(second, version_2));
}

TEST_F(StoreTest, TheNewestProfileIsTheOneSavedLast) {
  (void)Must(store_.SaveProfile(SmallProfile("a")));
  (void)Must(store_.SaveProfile(SmallProfile("b")));
  EXPECT_EQ(Must(store_.LoadProfile()).name, "b");
  const ProfileVersion third = Must(store_.SaveProfile(SmallProfile("a")));
  EXPECT_EQ(third, (ProfileVersion{"a", 2, "2026-02-01T00:00:00Z"}));
  EXPECT_EQ(Must(store_.LoadProfile()).name, "a");
  EXPECT_EQ(Must(store_.LoadProfile()).version, 2);
  EXPECT_EQ(Must(store_.LoadProfile({.version = 1})).name, "a");
}

TEST_F(StoreTest, WhatIsNotThereIsNamed) {
  EXPECT_EQ(store_.LoadProfile().status().code(), StatusCode::kNotFound);
  EXPECT_THAT(store_.LoadProfile().status().message(), HasSubstr("holds no profile yet"));
  (void)Must(store_.SaveProfile(SmallProfile("a")));
  EXPECT_THAT(store_.LoadProfile({.name = "b"}).status().message(), HasSubstr("no profile named 'b'"));
  EXPECT_THAT(store_.LoadProfile({.name = "a", .version = 9}).status().message(),
              HasSubstr("no version 9 of profile 'a'"));
  EXPECT_EQ(store_.LoadProfile({.name = "a", .version = 0}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(store_.SamplesOf({.profile_name = "a"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.LoadPlan({17}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.RunsOf({17}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.SaveRun({.plan = {17}, .schedule = "PIPELINE"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.SavePlan({.profile_name = "a", .profile_version = 2}).status().code(), StatusCode::kNotFound);
}

TEST_F(StoreTest, WrongValuesAreRefusedAndLeaveNothing) {
  Profile profile = SmallProfile("a");
  profile.kernels.push_back(profile.kernels[0]);
  EXPECT_EQ(store_.SaveProfile(profile).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(store_.SaveProfile(SmallProfile("")).status().code(), StatusCode::kInvalidInput);
  SampleBatch batch = SmallBatch("r");
  batch.samples.samples[0].times_s = {std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(store_.AppendSamples({&batch, 1}).status().code(), StatusCode::kInvalidInput);
  batch = SmallBatch("r");
  batch.samples.samples[0].provenance["hostname"] = "\xff";
  EXPECT_THAT(store_.AppendSamples({&batch, 1}).status().message(), HasSubstr("not UTF-8"));
  batch = SmallBatch("");
  EXPECT_THAT(store_.AppendSamples({&batch, 1}).status().message(), HasSubstr("requestId: found nothing"));
  EXPECT_EQ(store_.SavePlan({.profile_name = "a", .profile_version = -1}).status().code(), StatusCode::kInvalidInput);
  const PlanId plan = Must(store_.SavePlan({.profile_name = "a"}));
  EXPECT_EQ(store_.SaveRun({.plan = plan, .measured_time_s = std::numeric_limits<double>::infinity()}).status().code(),
            StatusCode::kInvalidInput);
  EXPECT_THAT(Must(store_.ListProfiles()).profiles, SizeIs(0));
  EXPECT_EQ(store_.SamplesOf({}).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Must(store_.RunsOf(plan)), SizeIs(0));
}

TEST_F(StoreTest, PagesGoOnWhereTheLastEndedWhateverIsSavedMeanwhile) {
  for (int i = 1; i <= 5; ++i) (void)Must(store_.SaveProfile(SmallProfile(StrCat("p", i))));
  const ProfilePage first = Must(store_.ListProfiles({.size = 2}));
  (void)Must(store_.SaveProfile(SmallProfile("late")));
  const ProfilePage second = Must(store_.ListProfiles({.size = 2, .token = first.next_token}));
  const ProfilePage third = Must(store_.ListProfiles({.size = 2, .token = second.next_token}));
  ASSERT_THAT(first.profiles, SizeIs(2));
  ASSERT_THAT(second.profiles, SizeIs(2));
  ASSERT_THAT(third.profiles, SizeIs(1));
  EXPECT_EQ(first.profiles[0].name, "p5");
  EXPECT_EQ(first.profiles[1].name, "p4");
  EXPECT_EQ(second.profiles[0].name, "p3");
  EXPECT_EQ(second.profiles[1].name, "p2");
  EXPECT_EQ(third.profiles[0], (ProfileVersion{"p1", 1, "2026-01-31T23:59:58Z"}));
  EXPECT_EQ(third.next_token, "");
  EXPECT_EQ(Must(store_.ListProfiles({.size = 6})).next_token, "");  // A page that is just full is the last.
}

TEST_F(StoreTest, WrongPagesAreRefused) {
  EXPECT_EQ(store_.ListProfiles({.size = 0}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(store_.ListProfiles({.size = 1001}).status().code(), StatusCode::kInvalidInput);
  for (const char* token : {"x", "7x", "-7", "0", "99999999999999999999"}) {
    EXPECT_EQ(store_.ListProfiles({.token = token}).status().code(), StatusCode::kInvalidInput) << token;
  }
}

TEST_F(StoreTest, SamplesReadBackInOrderWithEveryRepeatAndProvenance) {
  RandomValues random(TestSeed());
  std::vector<SampleBatch> batches;
  for (int i = 0; i < 20; ++i) batches.push_back(random.AnyBatch(StrCat("request ", i), random.Int(1, 50)));
  batches[7].calibration = "";
  EXPECT_EQ(Must(store_.AppendSamples(batches)), (AppendOutcome{.stored = 20}));
  const std::vector<Calibration> stored = Must(store_.SamplesOf({.profile_name = "cluster a"}));
  ASSERT_THAT(stored, SizeIs(20));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(stored[i].samples, batches[i].samples) << "batch " << i;
  EXPECT_EQ(stored[6].calibration, "of request 6");
  EXPECT_EQ(stored[7].calibration, "request 7");
}

TEST_F(StoreTest, BatchesOfOneCalibrationJoinAndFiltersCombine) {
  SampleBatch other = SmallBatch("r3", 9e-3);
  other.calibration = "tuesday";
  const std::vector batches = {SmallBatch("r1", 1e-3), other, SmallBatch("r2", 2e-3)};
  (void)Must(store_.AppendSamples(batches));
  const std::vector<Calibration> monday = Must(store_.SamplesOf({.calibration = "monday"}));
  ASSERT_THAT(monday, SizeIs(1));
  EXPECT_THAT(monday[0].samples.samples, ElementsAre(batches[0].samples.samples[0], batches[2].samples.samples[0]));
  EXPECT_THAT(Must(store_.SamplesOf({.profile_name = "cluster a"})), SizeIs(2));
  EXPECT_THAT(Must(store_.SamplesOf({})), SizeIs(2));
  EXPECT_EQ(store_.SamplesOf({.profile_name = "cluster b", .calibration = "monday"}).status().code(),
            StatusCode::kNotFound);
}

TEST_F(StoreTest, ARepeatedRequestIsStoredOnce) {
  const std::vector batches = {SmallBatch("r1"), SmallBatch("r2"), SmallBatch("r1")};
  EXPECT_EQ(Must(store_.AppendSamples(batches)), (AppendOutcome{.stored = 2, .repeated = 1}));
  EXPECT_EQ(Must(store_.AppendSamples(batches)), (AppendOutcome{.stored = 0, .repeated = 3}));
  EXPECT_THAT(Must(store_.SamplesOf({}))[0].samples.samples, SizeIs(2));
}

TEST_F(StoreTest, AKnownRequestWithOtherSamplesIsRefusedAndTheGroupWithIt) {
  const std::vector first = {SmallBatch("r1", 1e-3)};
  (void)Must(store_.AppendSamples(first));
  const std::vector group = {SmallBatch("r2"), SmallBatch("r1", 1.5e-3)};
  const Status refused = store_.AppendSamples(group).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(refused.message(), HasSubstr("request 'r1': was stored before with other samples"));
  EXPECT_EQ(Must(store_.SamplesOf({}))[0].samples, first[0].samples);
}

TEST_F(StoreTest, ACalibrationKeepsOneNameAndOneCluster) {
  SampleBatch batch = SmallBatch("r1");
  (void)Must(store_.AppendSamples({&batch, 1}));
  batch.request_id = "r2";
  batch.samples.cluster.nodes = 3;
  EXPECT_THAT(store_.AppendSamples({&batch, 1}).status().message(),
              HasSubstr("calibration 'monday': found another name or cluster"));
}

TEST_F(StoreTest, PlansAndRunsReadBackByteForByte) {
  (void)Must(store_.SaveProfile(SmallProfile("a")));
  PlanRecord plan = {.profile_name = "a",
                     .profile_version = 1,
                     .workload = std::string("{\0\xff}", 4),
                     .answer = "'); DROP TABLE plan; --"};
  PlanRecord from_file = {.profile_name = "not stored", .workload = "{}", .answer = ""};
  const PlanId plan_id = Must(store_.SavePlan(plan));
  const PlanId from_file_id = Must(store_.SavePlan(from_file));
  plan.created_at = "2026-01-31T23:59:59Z";
  from_file.created_at = "2026-02-01T00:00:00Z";
  EXPECT_EQ(Must(store_.LoadPlan(plan_id)), plan);
  EXPECT_EQ(Must(store_.LoadPlan(from_file_id)), from_file);

  RunRecord slow = {plan_id, "PIPELINE", 0.1, 0.30000000000000004, "{}"};
  RunRecord fast = {plan_id, "PARM_S1", 5e-324, 0, ""};
  (void)Must(store_.SaveRun(slow));
  (void)Must(store_.SaveRun(fast));
  (void)Must(store_.SaveRun({.plan = from_file_id, .schedule = "BASELINE"}));
  slow.created_at = "2026-02-01T00:00:01Z";
  fast.created_at = "2026-02-01T00:00:02Z";
  EXPECT_THAT(Must(store_.RunsOf(plan_id)), ElementsAre(slow, fast));
  EXPECT_THAT(Must(store_.RunsOf(from_file_id)), SizeIs(1));
}

TEST_F(StoreTest, EverythingIsThereAfterReopening) {
  const Profile profile = SmallProfile("a");
  const ProfileVersion version = Must(store_.SaveProfile(profile));
  const SampleBatch batch = SmallBatch("r1");
  (void)Must(store_.AppendSamples({&batch, 1}));
  { const Store closed = std::move(store_); }
  store_ = MustOpen(folder_ / "store.db");
  EXPECT_EQ(Must(store_.LoadProfile()), AsStored(profile, version));
  EXPECT_EQ(Must(store_.SamplesOf({}))[0].samples, batch.samples);
  EXPECT_EQ(Must(store_.AppendSamples({&batch, 1})), (AppendOutcome{.repeated = 1}));
}

TEST_F(StoreTest, ThreadsShareOneStore) {
  constexpr int kThreads = 4, kRounds = 10;
  std::vector<std::set<int>> versions(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        versions[thread].insert(Must(store_.SaveProfile(SmallProfile("shared"))).version);
        const SampleBatch batch = SmallBatch(StrCat(thread, "/", round));
        (void)Must(store_.AppendSamples({&batch, 1}));
        EXPECT_GE(Must(store_.LoadProfile()).version, 1);
        EXPECT_GE(Must(store_.ListProfiles()).profiles.size(), 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int> all;
  for (const std::set<int>& some : versions) all.insert(some.begin(), some.end());
  EXPECT_THAT(all, SizeIs(kThreads * kRounds));  // No version twice ...
  EXPECT_EQ(*all.rbegin(), kThreads * kRounds);  // ... and none left out.
  EXPECT_THAT(Must(store_.SamplesOf({}))[0].samples.samples, SizeIs(kThreads * kRounds));
}

TEST_F(StoreTest, TwentyThousandSamplesTakeLessThanTwoSeconds) {
  SampleBatch batch = SmallBatch("");
  batch.samples.samples.resize(1000, batch.samples.samples[0]);
  for (Sample& sample : batch.samples.samples) {
    sample.times_s.assign(9, 1.2345678901234567e-4);
    sample.provenance = {{"hostname", "node0123"}, {"backend", "host"}, {"takenAt", "2026-01-31T23:59:58Z"}};
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int group = 0; group < 20; ++group) {
    batch.request_id = StrCat("r", group);
    EXPECT_EQ(Must(store_.AppendSamples({&batch, 1})).stored, 1);
  }
  const double append_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto read_begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Must(store_.SamplesOf({}))[0].samples.samples, SizeIs(20000));
  const double read_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - read_begin).count();
  std::cout << "20,000 samples in 20 groups: appended in " << append_s << " s, read in " << read_s << " s\n";
  EXPECT_LT(append_s, kSanitized ? 60 : 2);
}

}  // namespace
}  // namespace moeplan
