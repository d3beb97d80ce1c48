// Samples that are set aside, batches of callers that know nothing of each other, and requests that became profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/random_values.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RejectedTest : public testing::Test {
 protected:
  StatusOr<BatchOutcome> Append(const SampleBatch& batch) {
    auto outcomes = store_.AppendEach({&batch, 1});
    if (!outcomes.ok()) return outcomes.status();
    return outcomes->at(0);
  }

  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db");
};

// Three samples; the middle one cannot be right.
SampleBatch OneBadOfThree(const std::string& request_id) {
  SampleBatch batch = SmallBatch(request_id);
  batch.samples.samples.resize(3, batch.samples.samples[0]);
  for (int i = 0; i < 3; ++i) batch.samples.samples[i].size = 1 + i;
  batch.samples.samples[1].times_s = {1e-3, kNaN, -kInfinity, 0};
  batch.rejected = {{.sample = 1, .reason = "no time"}};
  return batch;
}

TEST_F(RejectedTest, WhatIsSetAsideIsListedAndNotAmongTheSamples) {
  const SampleBatch batch = OneBadOfThree("r1");
  EXPECT_EQ(Must(Append(batch)), (BatchOutcome{.stored_samples = 2, .rejected_samples = 1}));
  EXPECT_THAT(Must(store_.SamplesOf({}))[0].samples.samples,
              ElementsAre(batch.samples.samples[0], batch.samples.samples[2]));
  const RejectedPage page = Must(store_.ListRejectedSamples());
  ASSERT_THAT(page.samples, SizeIs(1));
  EXPECT_EQ(page.next_token, "");
  const RejectedSample& rejected = page.samples[0];
  EXPECT_EQ(rejected.reason, "no time");
  EXPECT_EQ(rejected.request_id, "r1");
  EXPECT_EQ(rejected.profile_name, "cluster a");
  EXPECT_THAT(rejected.received_at, SizeIs(20));
  EXPECT_EQ(rejected.sample.key, batch.samples.samples[1].key);
  EXPECT_EQ(rejected.sample.size, 2);
  EXPECT_EQ(rejected.sample.provenance, batch.samples.samples[1].provenance);
  EXPECT_THAT(rejected.sample.times_s, ElementsAre(1e-3, testing::IsNan(), -kInfinity, 0));
}

TEST_F(RejectedTest, ASizeThatIsNoNumberReadsBack) {
  for (const double size : {kNaN, kInfinity, -1.0, 0.0}) {
    SampleBatch batch = OneBadOfThree(StrCat("size ", size));
    batch.samples.samples[1].size = size;
    EXPECT_EQ(Must(Append(batch)).rejected_samples, 1);
    EXPECT_THAT(Must(store_.ListRejectedSamples({.size = 1})).samples[0].sample.size,
                testing::NanSensitiveDoubleEq(size));
    EXPECT_TRUE(Must(Append(batch)).repeated);
  }
}

TEST_F(RejectedTest, ARepeatedRequestIsListedOnceAndAnswersTheSame) {
  SampleBatch batch = OneBadOfThree("r1");
  (void)Must(Append(batch));
  const BatchOutcome again = {.repeated = true, .stored_samples = 2, .rejected_samples = 1};
  EXPECT_EQ(Must(Append(batch)), again);
  // What was set aside the first time stays so, whoever judges now.
  batch.rejected = {{.sample = 0, .reason = "now for another reason"}, {.sample = 1, .reason = "no time"}};
  EXPECT_EQ(Must(Append(batch)), again);
  EXPECT_THAT(Must(store_.ListRejectedSamples()).samples, SizeIs(1));
  batch.samples.samples[1].times_s[1] = 2;  // Another sample in its place is another request.
  EXPECT_EQ(Append(batch).status().code(), StatusCode::kInvalidInput);
}

TEST_F(RejectedTest, ABatchOfWhichNothingIsLeftIsNoCalibration) {
  SampleBatch batch = OneBadOfThree("r1");
  batch.rejected = {{0, "a"}, {1, "b"}, {2, "c"}};
  EXPECT_EQ(Must(Append(batch)), (BatchOutcome{.rejected_samples = 3}));
  EXPECT_TRUE(Must(Append(batch)).repeated);
  EXPECT_EQ(store_.SamplesOf({}).status().code(), StatusCode::kNotFound);
  // Nor does its cluster bind the name.
  SampleBatch other = SmallBatch("r2");
  other.calibration = "tuesday";
  other.samples.cluster.nodes = 5;
  EXPECT_EQ(Must(Append(other)).stored_samples, 1);
}

TEST_F(RejectedTest, RandomBatchesAreKnownAgainWhateverWasSetAside) {
  RandomValues random(TestSeed());
  for (int i = 0; i < 50; ++i) {
    SampleBatch batch = random.AnyBatch(StrCat("request ", i), random.Int(1, 20));
    batch.samples.name = StrCat("cluster ", i);
    for (int j = 0; j < std::ssize(batch.samples.samples); ++j) {
      if (random.Int(0, 2) == 0) batch.rejected.push_back({.sample = j, .reason = random.Text()});
    }
    BatchOutcome outcome = {.stored_samples = static_cast<int>(batch.samples.samples.size() - batch.rejected.size()),
                            .rejected_samples = static_cast<int>(batch.rejected.size())};
    EXPECT_EQ(Must(Append(batch)), outcome);
    outcome.repeated = true;
    EXPECT_EQ(Must(Append(batch)), outcome);
  }
}

TEST_F(RejectedTest, PagesAreNewestFirstAndOfTheNameAskedFor) {
  for (int i = 0; i < 5; ++i) {
    SampleBatch batch = OneBadOfThree(StrCat("r", i));
    batch.calibration.clear();
    if (i == 3) batch.samples.name = "cluster b";
    (void)Must(Append(batch));
  }
  const auto request = [](const char* id) { return Field(&RejectedSample::request_id, id); };
  RejectedPage page = Must(store_.ListRejectedSamples({.size = 2}, "cluster a"));
  EXPECT_THAT(page.samples, ElementsAre(request("r4"), request("r2")));
  SampleBatch later = OneBadOfThree("later");
  (void)Must(Append(later));
  page = Must(store_.ListRejectedSamples({.size = 2, .token = page.next_token}, "cluster a"));
  EXPECT_THAT(page.samples, ElementsAre(request("r1"), request("r0")));
  EXPECT_EQ(page.next_token, "");
  EXPECT_THAT(Must(store_.ListRejectedSamples({}, "cluster b")).samples, ElementsAre(request("r3")));
  EXPECT_THAT(Must(store_.ListRejectedSamples({}, "cluster c")).samples, IsEmpty());
  EXPECT_EQ(store_.ListRejectedSamples({.size = 0}).status().code(), StatusCode::kInvalidInput);
}

TEST_F(RejectedTest, OneRefusedBatchLeavesTheOthersOfItsGroupIn) {
  (void)Must(Append(SmallBatch("r0")));
  SampleBatch reused = SmallBatch("r0", 5e-3), elsewhere = SmallBatch("r2"), not_utf8 = SmallBatch("r3"),
              slow_clock = SmallBatch("r4"), other_cluster = SmallBatch("r5");
  elsewhere.samples.name = "cluster b";
  not_utf8.samples.samples[0].provenance["hostname"] = "\xff";
  slow_clock.samples.samples[0].times_s[1] = 0;
  other_cluster.calibration = "tuesday";
  other_cluster.samples.cluster.nodes = 3;
  const std::vector group = {SmallBatch("r1"), reused,        elsewhere,       not_utf8,
                             slow_clock,       other_cluster, SmallBatch("r6")};
  const auto outcomes = Must(store_.AppendEach(group));
  ASSERT_THAT(outcomes, SizeIs(7));
  EXPECT_EQ(Must(outcomes[0]).stored_samples, 1);
  EXPECT_THAT(outcomes[1].status().message(), HasSubstr("request 'r0': was stored before"));
  EXPECT_THAT(outcomes[2].status().message(), HasSubstr("calibration 'monday': found another name"));
  EXPECT_THAT(outcomes[3].status().message(), HasSubstr("not UTF-8"));
  EXPECT_THAT(outcomes[4].status().message(), HasSubstr("samples[0].timeS[1]: found 0"));
  EXPECT_THAT(outcomes[5].status().message(), HasSubstr("samples.cluster: found nodes 3"));
  EXPECT_EQ(Must(outcomes[6]).stored_samples, 1);
  const auto requests = Must(store_.SamplesOf({}))[0].samples.samples;
  EXPECT_THAT(requests, SizeIs(3));  // r0, r1, r6.
}

TEST_F(RejectedTest, ARequestIsKnownByTheVersionItBecame) {
  EXPECT_EQ(Must(store_.VersionOfRequest("a")), std::nullopt);
  const ProfileVersion first = Must(store_.SaveProfile(SmallProfile("p"), "a"));
  EXPECT_EQ(Must(store_.VersionOfRequest("a")), first);
  (void)Must(store_.SaveProfile(SmallProfile("p"), "b"));
  EXPECT_TRUE(store_.RememberRequest("c", first).ok());
  EXPECT_EQ(Must(MustOpen(folder_ / "store.db").VersionOfRequest("c")), first);
  EXPECT_EQ(store_.RememberRequest("d", {.name = "p", .version = 9}).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace moeplan
