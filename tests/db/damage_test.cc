// A damaged file is reported; it never answers another value than was stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/random_values.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// What a store answers when asked for all that DamageTest puts into it.
struct Answers {
  StatusOr<Profile> profile;
  StatusOr<std::vector<Calibration>> samples;
  StatusOr<PlanRecord> plan;
  StatusOr<std::vector<RunRecord>> runs;
  StatusOr<std::vector<RejectedSample>> rejected;
};

template <typename T>
bool DiffersFrom(const StatusOr<T>& answer, const StatusOr<T>& stored) {
  return answer.ok() && *answer != *stored;
}

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    Store store = MustOpen(path_);
    (void)Must(store.SaveProfile(random_.AnyProfile("a")));
    for (int i = 0; i < 5; ++i) {
      SampleBatch batch = random_.AnyBatch(StrCat("request ", i), 60);
      if (i < 3) batch.rejected = {{.sample = 7, .reason = "too fast"}, {.sample = 8 + i, .reason = "too fast"}};
      (void)Must(store.AppendSamples({&batch, 1}));
    }
    plan_ = Must(store.SavePlan({.profile_name = "a", .profile_version = 1, .answer = std::string(100000, 'x')}));
    (void)Must(store.SaveRun({.plan = plan_, .schedule = "PIPELINE", .predicted_time_s = 0.1, .report = "{}"}));
    stored_ = Ask(store);
    { const Store closed = std::move(store); }
    bytes_ = ReadBytes(path_);
  }

  Answers Ask(const Store& store) const {
    return {store.LoadProfile(), store.SamplesOf({}), store.LoadPlan(plan_), store.RunsOf(plan_), RejectedOf(store)};
  }

  static StatusOr<std::vector<RejectedSample>> RejectedOf(const Store& store) {
    ASSIGN_OR_RETURN(RejectedPage page, store.ListRejectedSamples());
    return std::move(page.samples);
  }

  // The first error on the way to all contents of a file of `bytes`, or OK.
  Status ReadAll(const std::string& bytes) {
    const StatusOr<Store> store = OpenDamaged(bytes);
    RETURN_IF_ERROR(store.status());
    const Answers answers = Ask(*store);
    RETURN_IF_ERROR(answers.profile.status());
    RETURN_IF_ERROR(answers.samples.status());
    RETURN_IF_ERROR(answers.plan.status());
    RETURN_IF_ERROR(answers.rejected.status());
    return answers.runs.status();
  }

  StatusOr<Store> OpenDamaged(const std::string& bytes) {
    for (const char* side_file : {"-wal", "-shm"}) fs::remove(path_.string() + side_file);
    WriteBytes(path_, bytes);
    return Store::Open(path_);
  }

  RandomValues random_{TestSeed()};
  ScratchFolder folder_;
  fs::path path_ = folder_ / "store.db";
  PlanId plan_;
  Answers stored_;
  std::string bytes_;
};

TEST_F(DamageTest, WithoutDamageAllIsAnswered) { EXPECT_EQ(ReadAll(bytes_).message(), ""); }

TEST_F(DamageTest, AnyFlippedByteIsReportedOrHarmless) {
  int reported = 0;
  constexpr int kFlips = 1000;
  for (int flip = 0; flip < kFlips; ++flip) {
    const int at = random_.Int(0, static_cast<int>(bytes_.size()) - 1);
    std::string damaged = bytes_;
    damaged[at] ^= static_cast<char>(random_.Int(1, 255));
    const StatusOr<Store> store = OpenDamaged(damaged);
    if (!store.ok()) {
      EXPECT_THAT(store.status().message(), HasSubstr(path_.string()));
      ++reported;
      continue;
    }
    const Answers answers = Ask(*store);
    reported += !(answers.profile.ok() && answers.samples.ok() && answers.plan.ok() && answers.runs.ok() &&
                  answers.rejected.ok());
    EXPECT_FALSE(DiffersFrom(answers.profile, stored_.profile)) << "byte " << at;
    EXPECT_FALSE(DiffersFrom(answers.samples, stored_.samples)) << "byte " << at;
    EXPECT_FALSE(DiffersFrom(answers.plan, stored_.plan)) << "byte " << at;
    EXPECT_FALSE(DiffersFrom(answers.runs, stored_.runs)) << "byte " << at;
    EXPECT_FALSE(DiffersFrom(answers.rejected, stored_.rejected)) << "byte " << at;
  }
  std::cout << reported << " of " << kFlips << " flipped bytes reported, the others were in unused space\n";
  EXPECT_GT(reported, kFlips / 2);
}

TEST_F(DamageTest, AChangedDigitInAStoredTextIsReported) {
  // The plan's answer is far from any structure that SQLite checks.
  std::string damaged = bytes_;
  const size_t at = damaged.find("xxxxxxxx");
  ASSERT_NE(at, std::string::npos);
  damaged[at + 4] = 'y';
  const StatusOr<Store> store = OpenDamaged(damaged);
  ASSERT_TRUE(store.ok()) << store.status().message();
  const Status status = store->LoadPlan(plan_).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("plan 1 is not as it was stored"));
  EXPECT_TRUE(store->LoadProfile().ok());  // The rest is still readable.
}

TEST_F(DamageTest, AnIndexThatDisagreesWithItsTableIsDataLoss) {
  // A request id stands in its row and in the index over all ids. With either copy changed, the row would be stored a
  // second time when the request is repeated.
  int copies = 0;
  for (size_t at = bytes_.find("request 3"); at != std::string::npos; at = bytes_.find("request 3", at + 1)) {
    if (bytes_.substr(at - 3, 3) == "of ") continue;  // The calibration's name.
    ++copies;
    std::string damaged = bytes_;
    damaged[at + 8] = '9';
    const Status status = OpenDamaged(damaged).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("the database is damaged"));
    EXPECT_EQ(Store::OpenReadOnly(path_).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(copies, 2);
}

TEST_F(DamageTest, AnOverwrittenMiddleIsDataLoss) {
  for (int round = 0; round < 20; ++round) {
    std::string damaged = bytes_;
    // Four pages, and never the first one, which holds the schema.
    const size_t begin = random_.Int(4096, static_cast<int>(bytes_.size()) - 4 * 4096);
    for (size_t i = begin; i < begin + 4 * 4096; ++i) damaged[i] = static_cast<char>(random_.Int(0, 255));
    EXPECT_EQ(ReadAll(damaged).code(), StatusCode::kDataLoss) << "from byte " << begin;
  }
}

TEST_F(DamageTest, ATruncatedFileIsDataLoss) {
  for (int round = 0; round < 20; ++round) {
    const int size = random_.Int(1, static_cast<int>(bytes_.size()) - 1);
    EXPECT_EQ(ReadAll(bytes_.substr(0, size)).code(), StatusCode::kDataLoss) << "to " << size << " bytes";
  }
  for (int size = 1 << 11; size > 1; size -= 97) {
    EXPECT_EQ(ReadAll(bytes_.substr(0, size)).code(), StatusCode::kDataLoss) << "to " << size << " bytes";
  }
  for (size_t pages = 1; pages < bytes_.size() / 4096; ++pages) {
    EXPECT_EQ(ReadAll(bytes_.substr(0, pages * 4096)).code(), StatusCode::kDataLoss) << "to " << pages << " pages";
  }
}

TEST_F(DamageTest, AFileOfAnotherKindIsDataLossAndLeftAlone) {
  for (const std::string& bytes : {std::string("{\"samples\": []}"), std::string(10000, '\0'), std::string("xy")}) {
    const Status status = OpenDamaged(bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("found no SQLite database"));
    EXPECT_EQ(Store::OpenReadOnly(path_).status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(ReadBytes(path_) == bytes);
  }
}

TEST_F(DamageTest, DamageThatHappensWhileTheStoreIsOpenIsReported) {
  StatusOr<Store> store = Store::Open(path_);
  ASSERT_TRUE(store.ok());
  // More than SQLite keeps in memory, which is 2 MB.
  const PlanId plan = Must(store->SavePlan({.answer = std::string(8 << 20, 'y')}));
  { const Store other = MustOpen(path_); }
  const size_t size = fs::file_size(path_);
  WriteBytes(path_, bytes_.substr(0, 100) + std::string(size - 100, '\xa5'));
  EXPECT_EQ(store->LoadPlan(plan).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace moeplan
