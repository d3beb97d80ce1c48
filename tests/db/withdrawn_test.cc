// Samples that are taken out of the fits.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "db/store.h"
#include "models/text.h"
#include "models/time_text.h"
#include "tests/db/random_values.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// The samples that count, by size.
std::vector<double> SizesOf(const std::vector<Calibration>& calibrations) {
  std::vector<double> sizes;
  for (const Calibration& calibration : calibrations) {
    for (const Sample& sample : calibration.samples.samples) sizes.push_back(sample.size);
  }
  return sizes;
}

class WithdrawnTest : public testing::Test {
 protected:
  // One sample of each size, of the agents given, in a request.
  void Append(const std::string& request_id, const std::vector<std::pair<double, std::string>>& samples,
              const std::string& calibration = "") {
    SampleBatch batch = SmallBatch(request_id);
    batch.calibration = calibration;
    const Sample one = batch.samples.samples.front();
    batch.samples.samples.clear();
    for (const auto& [size, agent] : samples) {
      Sample& sample = batch.samples.samples.emplace_back(one);
      sample.size = size;
      if (!agent.empty()) sample.provenance["agent"] = agent;
    }
    (void)Must(store_.AppendSamples({&batch, 1}));
  }

  // The name of SmallBatch, and a fit that says how many samples it saw by its memory.
  static constexpr char kName[] = "cluster a";
  static StatusOr<Profile> Fit(std::span<const Calibration> calibrations) {
    Profile profile = SmallProfile(kName);
    profile.cluster.device_memory_bytes = 0;
    for (const Calibration& one : calibrations) {
      profile.cluster.device_memory_bytes += static_cast<double>(one.samples.samples.size());
    }
    return profile;
  }
  StatusOr<WithdrawOutcome> Withdraw(const WithdrawRequest& request) { return store_.WithdrawSamples(request, Fit); }

  std::vector<double> Left() {
    const auto found = store_.SamplesOf({.profile_name = kName});
    return found.ok() ? SizesOf(*found) : std::vector<double>();
  }
  std::vector<double> Withdrawn() {
    std::vector<double> sizes;
    for (const RejectedSample& one : Must(store_.ListRejectedSamples({.size = 1000}, kName)).samples) {
      if (one.reason == "withdrawn") sizes.push_back(one.sample.size);
    }
    std::ranges::sort(sizes);
    return sizes;
  }

  ScratchFolder folder_;
  std::string now_ = "2026-01-31T12:00:00Z";
  Store store_ = MustOpen(folder_ / "store.db", {.now = [this] { return *ParseRfc3339(now_); }});
};

TEST_F(WithdrawnTest, ByRequestEverythingElseStays) {
  Append("r1", {{1, ""}, {2, ""}});
  Append("r2", {{3, ""}});
  const WithdrawOutcome outcome = Must(Withdraw({.profile_name = kName, .request_id = "r1"}));
  EXPECT_EQ(outcome.samples, 2);
  EXPECT_EQ(outcome.requests, 1);
  EXPECT_EQ(outcome.left, 1);
  ASSERT_TRUE(outcome.version.has_value());
  EXPECT_EQ(outcome.version->version, 1);
  EXPECT_EQ(Must(store_.LoadProfile({.name = kName})).cluster.device_memory_bytes, 1);
  EXPECT_THAT(Left(), ElementsAre(3));
  EXPECT_THAT(Withdrawn(), ElementsAre(1, 2));
}

TEST_F(WithdrawnTest, ByCalibrationAllItsRequests) {
  Append("r1", {{1, ""}}, "monday");
  Append("r2", {{2, ""}}, "monday");
  Append("r3", {{3, ""}}, "tuesday");
  const WithdrawOutcome outcome = Must(Withdraw({.profile_name = kName, .request_id = "monday"}));
  EXPECT_EQ(outcome.samples, 2);
  EXPECT_EQ(outcome.requests, 2);
  EXPECT_THAT(Left(), ElementsAre(3));
}

TEST_F(WithdrawnTest, ByAgentAlsoWithinARequest) {
  Append("r1", {{1, "good"}, {2, "bad"}, {3, ""}});
  Append("r2", {{4, "bad"}, {5, "badly"}});
  const WithdrawOutcome outcome = Must(Withdraw({.profile_name = kName, .agent = "bad"}));
  EXPECT_EQ(outcome.samples, 2);
  EXPECT_EQ(outcome.requests, 2);
  EXPECT_EQ(outcome.left, 3);
  EXPECT_THAT(Left(), ElementsAre(1, 3, 5));
  EXPECT_THAT(Withdrawn(), ElementsAre(2, 4));
}

TEST_F(WithdrawnTest, SinceAMomentThatMomentToo) {
  Append("r1", {{1, ""}});
  now_ = "2026-01-31T12:00:01Z";
  Append("r2", {{2, ""}});
  now_ = "2026-01-31T12:00:02Z";
  Append("r3", {{3, ""}});
  EXPECT_EQ(Must(Withdraw({.profile_name = kName, .since = "2026-01-31T12:00:01Z"})).samples, 2);
  EXPECT_THAT(Left(), ElementsAre(1));
}

TEST_F(WithdrawnTest, OtherNamesAreLeftAlone) {
  Append("r1", {{1, "bad"}});
  SampleBatch other = SmallBatch("r2");
  other.samples.name = "other";
  other.samples.samples.front().provenance["agent"] = "bad";
  (void)Must(store_.AppendSamples({&other, 1}));
  EXPECT_EQ(Must(Withdraw({.profile_name = kName, .agent = "bad"})).samples, 1);
  EXPECT_THAT(Must(store_.SamplesOf({.profile_name = "other"})), SizeIs(1));
}

TEST_F(WithdrawnTest, WhatIsAskedForAgainChangesNothing) {
  Append("r1", {{1, ""}});
  Append("r2", {{2, ""}});
  (void)Must(Withdraw({.profile_name = kName, .request_id = "r1"}));
  const std::int64_t latest = Must(store_.LatestWithdrawal());
  EXPECT_EQ(Must(Withdraw({.profile_name = kName, .request_id = "r1"})), (WithdrawOutcome{.left = 1}));
  EXPECT_EQ(Must(store_.LatestWithdrawal()), latest);
  EXPECT_THAT(Must(store_.ListProfiles()).profiles, SizeIs(1));
}

TEST_F(WithdrawnTest, WhenNothingIsLeftNothingIsFitted) {
  Append("r1", {{1, ""}});
  EXPECT_EQ(Must(Withdraw({.profile_name = kName, .request_id = "r1"})),
            (WithdrawOutcome{.samples = 1, .requests = 1}));
  EXPECT_THAT(Must(store_.ListProfiles()).profiles, IsEmpty());
  EXPECT_THAT(Withdrawn(), ElementsAre(1));
}

TEST_F(WithdrawnTest, ADryRunOrAFitThatFailsChangesNothing) {
  Append("r1", {{1, ""}});
  Append("r2", {{2, ""}});
  EXPECT_EQ(Must(Withdraw({.profile_name = kName, .request_id = "r1", .dry_run = true})),
            (WithdrawOutcome{.samples = 1, .requests = 1, .left = 1}));
  EXPECT_EQ(store_
                .WithdrawSamples({.profile_name = kName, .request_id = "r1"},
                                 [](std::span<const Calibration>) -> StatusOr<Profile> { return InvalidInput("no"); })
                .status(),
            InvalidInput("no"));
  EXPECT_THAT(Left(), ElementsAre(1, 2));
  EXPECT_THAT(Withdrawn(), IsEmpty());
  EXPECT_EQ(Must(store_.LatestWithdrawal()), 0);
}

TEST_F(WithdrawnTest, ARepeatedRequestDoesNotComeBack) {
  Append("r1", {{1, ""}, {2, ""}});
  (void)Must(Withdraw({.profile_name = kName, .request_id = "r1"}));
  Append("r1", {{1, ""}, {2, ""}});
  EXPECT_THAT(Left(), IsEmpty());
  EXPECT_THAT(Withdrawn(), ElementsAre(1, 2));
}

TEST_F(WithdrawnTest, AFitOfWithdrawnSamplesIsNotSaved) {
  Append("r1", {{1, ""}});
  Append("r2", {{2, ""}});
  const std::int64_t before = Must(store_.LatestWithdrawal());
  (void)Must(Withdraw({.profile_name = kName, .request_id = "r1"}));
  EXPECT_EQ(store_.SaveProfile(SmallProfile(kName), "late", before).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(store_.SaveProfile(SmallProfile(kName), "late", Must(store_.LatestWithdrawal())).ok());
}

// A reader that remembers batches (known_batches.h), as a planner's for its curves.
TEST_F(WithdrawnTest, ReadersThatRememberBatchesNotice) {
  Append("r1", {{1, ""}, {2, "bad"}});
  const auto opened = Store::OpenReadOnly(folder_ / "store.db");
  ASSERT_TRUE(opened.ok());
  const Store& reader = *opened;
  const auto key = SmallBatch("").samples.samples.front().key;
  EXPECT_THAT(Must(reader.SamplesOfKey(kName, key)).times, SizeIs(2));
  (void)Must(Withdraw({.profile_name = kName, .agent = "bad"}));
  const KeySamples after = Must(reader.SamplesOfKey(kName, key));
  ASSERT_THAT(after.times, SizeIs(1));
  EXPECT_EQ(after.times[0].size, 1);
}

TEST_F(WithdrawnTest, OneSelectorIsWantedAndAKnownName) {
  Append("r1", {{1, ""}});
  EXPECT_EQ(Withdraw({.profile_name = kName}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(Withdraw({.profile_name = kName, .request_id = "r1", .agent = "a"}).status().code(),
            StatusCode::kInvalidInput);
  EXPECT_EQ(Withdraw({.profile_name = "nobody's", .agent = "a"}).status().code(), StatusCode::kNotFound);
}

TEST_F(WithdrawnTest, AFlippedByteIsNotSealedAnew) {
  Append("r1", {{1, ""}, {2, "bad"}});
  SQLite::Database((folder_ / "store.db").string(), SQLite::OPEN_READWRITE)
      .exec("UPDATE sample SET size = 3 WHERE ordinal = 0");
  EXPECT_EQ(Withdraw({.profile_name = kName, .agent = "bad"}).status().code(), StatusCode::kDataLoss);
}

// Every sample is among those that count or among those set aside, once, with all that it said, and every seal holds.
TEST_F(WithdrawnTest, NothingIsLostOrDoubledByAnyWithdrawals) {
  RandomValues random(TestSeed());
  double size = 0;
  int wrong = 0;
  for (int request = 0; request < 40; ++request) {
    SampleBatch batch = SmallBatch(StrCat("r", request));
    const Sample one = batch.samples.samples.front();
    batch.samples.samples.clear();
    for (int left = random.Int(1, 6); left > 0; --left) {
      Sample& sample = batch.samples.samples.emplace_back(one);
      sample.size = ++size;
      sample.provenance["agent"] = StrCat("agent", random.Int(0, 3));
      if (random.Int(0, 5) > 0) continue;
      batch.rejected.push_back({.sample = static_cast<int>(batch.samples.samples.size()) - 1, .reason = "wrong"});
      ++wrong;
    }
    (void)Must(store_.AppendSamples({&batch, 1}));
  }
  for (int round = 0; round < 12; ++round) {
    WithdrawRequest request = {.profile_name = kName, .dry_run = random.Int(0, 3) == 0};
    if (random.Int(0, 1) == 0) {
      request.request_id = StrCat("r", random.Int(0, 45));
    } else {
      request.agent = StrCat("agent", random.Int(0, 2));
    }
    const WithdrawOutcome outcome = Must(Withdraw(request));
    std::vector<double> all = Left();
    EXPECT_EQ(outcome.left + (request.dry_run ? outcome.samples : 0), std::ssize(all));
    for (const RejectedSample& one : Must(store_.ListRejectedSamples({.size = 1000}, kName)).samples) {
      all.push_back(one.sample.size);
    }
    std::ranges::sort(all);
    ASSERT_EQ(std::ssize(all), static_cast<long>(size));
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<double>(i + 1));
  }
  EXPECT_EQ(std::ssize(Left()) + std::ssize(Withdrawn()) + wrong, static_cast<long>(size));
}

}  // namespace
}  // namespace moeplan
