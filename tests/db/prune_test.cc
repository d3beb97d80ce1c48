// Removing old versions, and what goes with them.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using std::chrono::system_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PruneTest : public testing::Test {
 protected:
  void Save(const std::string& name, int times) {
    for (int i = 0; i < times; ++i) (void)Must(store_.SaveProfile(SmallProfile(name), StrCat(name, " ", ++requests_)));
  }
  void Append(const std::string& request_id, const std::string& name = "a") {
    SampleBatch batch = SmallBatch(request_id);
    batch.calibration.clear();
    batch.samples.name = name;
    (void)Must(store_.AppendSamples({&batch, 1}));
  }
  PlanId SavePlan(const std::string& name, int version) {
    return Must(store_.SavePlan({.profile_name = name, .profile_version = version, .answer = "{}"}));
  }
  std::vector<std::string> Versions() const {
    std::vector<std::string> versions;
    for (const auto& profile : Must(store_.ListProfiles()).profiles) {
      versions.push_back(StrCat(profile.name, profile.version));
    }
    return versions;
  }
  std::vector<std::string> Requests() const {
    std::vector<std::string> requests;
    const auto found = store_.SamplesOf({});
    for (const Calibration& calibration : found.ok() ? *found : std::vector<Calibration>()) {
      requests.push_back(calibration.calibration);
    }
    return requests;
  }
  static std::vector<std::string> Names(const std::vector<ProfileVersion>& versions) {
    std::vector<std::string> names;
    for (const ProfileVersion& version : versions) names.push_back(StrCat(version.name, version.version));
    return names;
  }

  int requests_ = 0;
  std::shared_ptr<system_clock::time_point> now_ = std::make_shared<system_clock::time_point>(hours(24 * 365 * 50));
  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db", {.now = [now = now_] { return *now; }});
};

TEST_F(PruneTest, TheNewestOfEachNameStay) {
  Save("a", 4);
  Save("b", 1);
  const PruneOutcome outcome = Must(store_.PruneProfiles({.keep = 2}));
  EXPECT_THAT(Names(outcome.removed), ElementsAre("a1", "a2"));
  EXPECT_THAT(outcome.in_use, IsEmpty());
  EXPECT_THAT(Versions(), ElementsAre("b1", "a4", "a3"));
  EXPECT_EQ(store_.LoadProfile({.name = "a", .version = 2}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Must(store_.LoadProfile({.name = "a"})).version, 4);
  EXPECT_EQ(Must(store_.VersionOfRequest("a 1")), std::nullopt);
  EXPECT_EQ(Must(store_.VersionOfRequest("a 3"))->version, 3);
  Save("a", 1);
  EXPECT_EQ(Must(store_.LoadProfile({.name = "a"})).version, 5);  // Numbers go on.
  EXPECT_THAT(Must(store_.PruneProfiles({.keep = 3})).removed, IsEmpty());
}

TEST_F(PruneTest, OnlyTheNameAskedFor) {
  Save("a", 2);
  Save("b", 2);
  EXPECT_THAT(Names(Must(store_.PruneProfiles({.keep = 1, .profile_name = "b"})).removed), ElementsAre("b1"));
  EXPECT_THAT(Versions(), ElementsAre("b2", "a2", "a1"));
}

TEST_F(PruneTest, ADryRunSaysTheSameAndRemovesNothing) {
  Append("1");
  Save("a", 3);
  SavePlan("a", 1);
  const PruneRequest request = {.keep = 1, .plans_older_than = seconds(-1), .samples = true};
  PruneRequest dry = request;
  dry.dry_run = true;
  const PruneOutcome said = Must(store_.PruneProfiles(dry));
  EXPECT_THAT(Versions(), SizeIs(3));
  EXPECT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Must(store_.PruneProfiles(request)), said);
  EXPECT_EQ(said.plans, 1);
  EXPECT_EQ(said.samples, 1);
  EXPECT_THAT(Versions(), SizeIs(1));
}

TEST_F(PruneTest, AVersionThatAPlanRefersToStaysUntilThePlanIsOldEnough) {
  Save("a", 3);
  const PlanId old_plan = SavePlan("a", 1);
  (void)Must(store_.SaveRun({.plan = old_plan, .schedule = "PIPELINE", .report = "{}"}));
  *now_ += hours(24 * 10);
  const PlanId new_plan = SavePlan("a", 2);
  PruneOutcome outcome = Must(store_.PruneProfiles({.keep = 1}));
  EXPECT_THAT(outcome.removed, IsEmpty());
  EXPECT_THAT(Names(outcome.in_use), ElementsAre("a1", "a2"));
  outcome = Must(store_.PruneProfiles({.keep = 1, .plans_older_than = hours(24 * 9)}));
  EXPECT_THAT(Names(outcome.removed), ElementsAre("a1"));
  EXPECT_THAT(Names(outcome.in_use), ElementsAre("a2"));
  EXPECT_EQ(outcome.plans, 1);
  EXPECT_EQ(outcome.runs, 1);
  EXPECT_EQ(store_.LoadPlan(old_plan).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Must(store_.LoadPlan(new_plan)).profile_version, 2);
}

TEST_F(PruneTest, APlanExactlyAsOldAsTheLimitKeepsItsVersion) {
  Save("a", 2);
  (void)SavePlan("a", 1);
  *now_ += hours(24 * 9);
  PruneOutcome outcome = Must(store_.PruneProfiles({.keep = 1, .plans_older_than = hours(24 * 9)}));
  EXPECT_THAT(outcome.removed, IsEmpty());
  EXPECT_THAT(Names(outcome.in_use), ElementsAre("a1"));
  *now_ += seconds(1);
  outcome = Must(store_.PruneProfiles({.keep = 1, .plans_older_than = hours(24 * 9)}));
  EXPECT_THAT(Names(outcome.removed), ElementsAre("a1"));
  EXPECT_EQ(outcome.plans, 1);
}

TEST_F(PruneTest, APlanOfAVersionThatStaysStaysHoweverOld) {
  Save("a", 2);
  const PlanId plan = SavePlan("a", 2);
  *now_ += hours(24 * 1000);
  EXPECT_EQ(Must(store_.PruneProfiles({.keep = 1, .plans_older_than = hours(1)})).plans, 0);
  EXPECT_TRUE(store_.LoadPlan(plan).ok());
}

TEST_F(PruneTest, SamplesStayUnlessAskedForAndThenThoseOfKeptVersionsAlone) {
  Append("1");
  Append("of another name", "b");
  Save("a", 1);
  Append("2");  // Within the same second, and of the version that stays alone.
  Save("a", 1);
  EXPECT_EQ(Must(store_.PruneProfiles({.keep = 1})).samples, 0);
  EXPECT_THAT(Requests(), ElementsAre("1", "of another name", "2"));
  Save("a", 1);
  Append("3");
  const PruneOutcome outcome = Must(store_.PruneProfiles({.keep = 1, .samples = true}));
  EXPECT_THAT(Names(outcome.removed), ElementsAre("a2"));
  EXPECT_EQ(outcome.samples, 2);
  EXPECT_THAT(Requests(), ElementsAre("of another name", "3"));
}

TEST_F(PruneTest, RejectedSamplesGoWithTheOthersOfTheirRequest) {
  SampleBatch batch = SmallBatch("1");
  batch.samples.name = "a";
  batch.samples.samples.resize(2, batch.samples.samples[0]);
  batch.rejected = {{.sample = 1, .reason = "too fast"}};
  (void)Must(store_.AppendSamples({&batch, 1}));
  Save("a", 2);
  const PruneOutcome outcome = Must(store_.PruneProfiles({.keep = 1, .samples = true}));
  EXPECT_EQ(outcome.samples, 1);
  EXPECT_EQ(outcome.rejected_samples, 1);
  EXPECT_THAT(Must(store_.ListRejectedSamples()).samples, IsEmpty());
}

TEST_F(PruneTest, SamplesThatComeAfterAllWereRemovedAreNotTakenForOldOnes) {
  Append("1");
  Append("2");
  Save("a", 2);  // Of two batches each.
  EXPECT_EQ(Must(store_.PruneProfiles({.keep = 1, .samples = true})).samples, 2);
  Append("3");
  Save("a", 1);
  EXPECT_EQ(Must(store_.PruneProfiles({.keep = 1, .samples = true})).samples, 0);
  EXPECT_THAT(Requests(), ElementsAre("3"));
}

TEST_F(PruneTest, AVersionOfAnOlderMoeplanTakesWhatCameBeforeTheSecondOfItsSaving) {
  Append("1");
  *now_ += seconds(1);
  Append("2");
  Save("a", 2);
  SQLite::Database((folder_ / "store.db").string(), SQLite::OPEN_READWRITE)
      .exec("UPDATE profile SET last_batch_id = NULL");
  EXPECT_EQ(Must(store_.PruneProfiles({.keep = 1, .samples = true})).samples, 1);
  EXPECT_THAT(Requests(), ElementsAre("2"));
}

TEST_F(PruneTest, NothingThatIsLeftRefersToWhatWentAndNoSealIsLeftBehind) {
  for (int i = 0; i < 3; ++i) {
    Append(StrCat(i));
    Save("a", 1);
    (void)Must(store_.SaveRun({.plan = SavePlan("a", i + 1), .schedule = "PIPELINE", .report = "{}"}));
  }
  (void)Must(store_.PruneProfiles({.keep = 1, .plans_older_than = seconds(-1), .samples = true}));
  SQLite::Database database((folder_ / "store.db").string());
  SQLite::Statement broken(database, "PRAGMA foreign_key_check");
  EXPECT_FALSE(broken.executeStep());
  // A profile, a batch, a plan and a run are left, with a seal each.
  for (const char* table : {"profile", "sample_batch", "plan", "run", "calibration", "provenance_text"}) {
    EXPECT_EQ(database.execAndGet(StrCat("SELECT count(*) FROM ", table)).getInt(), 1) << table;
  }
  EXPECT_EQ(database.execAndGet("SELECT count(*) FROM seal").getInt(), 4);
}

TEST_F(PruneTest, NoSealIsLeftWithoutItsRowsWhateverABatchHeld) {
  for (const bool rejects : {false, true}) {
    for (const bool keeps : {false, true}) {
      SampleBatch batch = SmallBatch(StrCat(rejects, keeps));
      batch.samples.name = "a";
      batch.samples.samples.resize(2, batch.samples.samples[0]);
      if (rejects) batch.rejected.push_back({.sample = 0, .reason = "too fast"});
      if (rejects && !keeps) batch.rejected.push_back({.sample = 1, .reason = "too fast"});
      (void)Must(store_.AppendSamples({&batch, 1}));
    }
  }
  Save("a", 2);
  SQLite::Database database((folder_ / "store.db").string());
  const auto seals = [&](const char* thing) {
    return database.execAndGet(StrCat("SELECT count(*) FROM seal WHERE thing = '", thing, "'")).getInt();
  };
  ASSERT_EQ(seals("sample_batch"), 4);
  ASSERT_GT(seals("rejected_sample"), 0);
  (void)Must(store_.PruneProfiles({.keep = 1, .samples = true}));
  EXPECT_EQ(seals("sample_batch"), 0);
  EXPECT_EQ(seals("rejected_sample"), 0);
  EXPECT_EQ(seals("profile"), 1);
}

TEST_F(PruneTest, FreedSpaceLeavesTheFile) {
  for (int i = 0; i < 50; ++i) Append(StrCat(i, std::string(20000, 'x')));
  Save("a", 2);
  (void)Must(store_.PruneProfiles({.keep = 1, .samples = true}));
  const auto freed = Must(store_.FreeSpace());
  EXPECT_GT(freed, 50 * 20000);
  EXPECT_LT(std::filesystem::file_size(folder_ / "store.db"), 300000);
  EXPECT_EQ(Must(store_.LoadProfile()).version, 2);
}

TEST_F(PruneTest, WrongRequestsAreRefused) {
  EXPECT_THAT(store_.PruneProfiles({.keep = 0}).status().message(), HasSubstr("keep: found 0"));
  StatusOr<Store> reader = Store::OpenReadOnly(folder_ / "store.db");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->PruneProfiles({}).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(reader->FreeSpace().status().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace moeplan
