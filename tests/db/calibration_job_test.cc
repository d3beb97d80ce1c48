#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <SQLiteCpp/SQLiteCpp.h>

#include "db/store.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CalibrationJobTest : public testing::Test {
 protected:
  CalibrationJob Save(const std::string& request_id, const std::string& cluster = "c") {
    return Must(store_.SaveCalibrationJob({.request_id = request_id, .cluster = cluster, .request = "{}"}));
  }
  static std::vector<std::int64_t> IdsOf(const std::vector<CalibrationJob>& jobs) {
    std::vector<std::int64_t> ids;
    for (const CalibrationJob& job : jobs) ids.push_back(job.id);
    return ids;
  }

  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db");
};

TEST_F(CalibrationJobTest, TheNewestEventIsHowFarItIs) {
  const CalibrationJob job = Save("a");
  EXPECT_EQ(job.newest, CalibrationEvent());
  const CalibrationEvent first = {.state = "RUNNING", .detail = "x", .spent_s = 1.5, .samples = 3};
  const CalibrationEvent last = {.state = "DONE", .ended = true, .spent_s = 2, .samples = 9, .profile_version = 4};
  ASSERT_TRUE(store_.SaveCalibrationEvent(job.id, first).ok());
  EXPECT_EQ(Must(store_.LoadCalibrationJob(job.id)).newest, first);
  ASSERT_TRUE(store_.SaveCalibrationEvent(job.id, last).ok());
  const CalibrationJob read = Must(MustOpen(folder_ / "store.db").LoadCalibrationJob(job.id));
  EXPECT_EQ(read.newest, last);
  EXPECT_EQ(read.request, "{}");
  EXPECT_EQ(read.created_at, job.created_at);
}

TEST_F(CalibrationJobTest, ARepeatedRequestIsTheSameJobAndAnotherContentIsRefused) {
  const CalibrationJob job = Save("a");
  ASSERT_TRUE(store_.SaveCalibrationEvent(job.id, {.state = "RUNNING"}).ok());
  EXPECT_EQ(Save("a").id, job.id);
  EXPECT_EQ(Save("a").newest.state, "RUNNING");
  const Status reused = store_.SaveCalibrationJob({.request_id = "a", .cluster = "other", .request = "{}"}).status();
  EXPECT_EQ(reused.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(reused.message(), HasSubstr("request 'a': asked for another calibration before"));
}

TEST_F(CalibrationJobTest, UnendedOnesComeInTheOrderAskedForAndPagesTheOtherWayRound) {
  const std::int64_t a = Save("a").id, b = Save("b", "d").id, c = Save("c").id;
  ASSERT_TRUE(store_.SaveCalibrationEvent(a, {.state = "RUNNING"}).ok());
  ASSERT_TRUE(store_.SaveCalibrationEvent(b, {.state = "FAILED", .ended = true}).ok());
  EXPECT_THAT(IdsOf(Must(store_.UnendedCalibrationJobs())), ElementsAre(a, c));
  const CalibrationJobPage first = Must(store_.ListCalibrationJobs({.size = 2}));
  EXPECT_THAT(IdsOf(first.jobs), ElementsAre(c, b));
  EXPECT_THAT(IdsOf(Must(store_.ListCalibrationJobs({.size = 2, .token = first.next_token})).jobs), ElementsAre(a));
  EXPECT_THAT(IdsOf(Must(store_.ListCalibrationJobs({}, "d")).jobs), ElementsAre(b));
  EXPECT_EQ(store_.ListCalibrationJobs({.size = 0}).status().code(), StatusCode::kInvalidInput);
}

TEST_F(CalibrationJobTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(store_.LoadCalibrationJob(7).status().message(), HasSubstr("holds no calibration 7"));
  EXPECT_THAT(store_.SaveCalibrationEvent(7, {.state = "RUNNING"}).message(), HasSubstr("holds no calibration 7"));
  EXPECT_THAT(store_.SaveCalibrationEvent(7, {}).message(), HasSubstr("state: found nothing"));
  EXPECT_EQ(store_.SaveCalibrationEvent(7, {.state = "x", .spent_s = -1}).code(), StatusCode::kInvalidInput);
}

TEST_F(CalibrationJobTest, AChangedValueIsDamage) {
  const CalibrationJob job = Save("a");
  ASSERT_TRUE(store_.SaveCalibrationEvent(job.id, {.state = "RUNNING", .samples = 3}).ok());
  SQLite::Database((folder_ / "store.db").string(), SQLite::OPEN_READWRITE)
      .exec("UPDATE calibration_job_event SET samples = 4");
  EXPECT_EQ(store_.LoadCalibrationJob(job.id).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace moeplan
