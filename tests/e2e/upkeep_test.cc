// `moeplan profile prune`, `backup` and `rejected`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "db/store.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

// Three versions of one name, of two samples each and one that was set aside; a plan of the first.
void Fill(const std::string& path) {
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  Profile profile = {.name = "a", .cluster = {.nodes = 1, .gpus_per_node = 1}};
  profile.kernels.push_back({{.kernel = Kernel::kGate}, MakeCostModel(AlphaBeta{1e-6, 1e-12})});
  for (const char* request : {"1", "2", "3"}) {
    SampleBatch batch = {.request_id = request, .samples = {.name = "a", .cluster = profile.cluster}};
    const Sample sample = {.key = KernelKey{.kernel = Kernel::kGate}, .size = 1024, .times_s = {1e-3}};
    batch.samples.samples.assign(3, sample);
    batch.samples.samples[1].times_s = {std::nan("")};
    batch.rejected = {{.sample = 1, .reason = "timeS[0]: found nan"}};
    ASSERT_TRUE(store->AppendSamples({&batch, 1}).ok());
    ASSERT_TRUE(store->SaveProfile(profile).ok());
  }
  ASSERT_TRUE(store->SavePlan({.profile_name = "a", .profile_version = 1, .answer = "{}"}).ok());
}

Json JsonOf(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST(UpkeepTest, WithdrawingEverythingSaysWhichVersionStays) {
  const TemporaryFolder folder;
  const std::string db = folder / "m.db";
  Fill(db);
  const Outcome one = RunMoeplan({"profile", "withdraw", "--db", db, "--profile-name", "a", "--request-id", "1"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.err, "");
  const Outcome all =
      RunMoeplan({"profile", "withdraw", "--db", db, "--profile-name", "a", "--since", "2020-01-01T00:00:00Z"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.err, HasSubstr("warning: nothing is left to fit, so version 4 of profile a still answers"));
}

TEST(UpkeepTest, PruneRemovesOldVersionsAndSaysWhich) {
  const TemporaryFolder folder;
  const std::string db = folder / "m.db";
  Fill(db);
  const Json said = JsonOf(RunMoeplan({"profile", "prune", "--db", db, "--keep", "1", "--dry-run", "--json"}));
  EXPECT_EQ(said["dryRun"], true);
  EXPECT_EQ(JsonOf(RunMoeplan({"profile", "list", "--db", db, "--json"}))["profiles"].size(), 3u);
  const Json done = JsonOf(RunMoeplan({"profile", "prune", "--db", db, "--keep", "1", "--json"}));
  EXPECT_EQ(done["removed"], said["removed"]);
  ASSERT_THAT(done["removed"], SizeIs(1));
  EXPECT_EQ(done["removed"][0]["version"], 2);
  ASSERT_THAT(done["inUse"], SizeIs(1));
  EXPECT_EQ(done["inUse"][0]["version"], 1);
  EXPECT_EQ(done["samples"], 0);
  EXPECT_GE(done["freedBytes"], 0);
  const Json young =
      JsonOf(RunMoeplan({"profile", "prune", "--db", db, "--keep", "1", "--older-than", "1d", "--json"}));
  EXPECT_THAT(young["removed"], SizeIs(0));
  EXPECT_EQ(JsonOf(RunMoeplan({"profile", "list", "--db", db, "--json"}))["profiles"].size(), 2u);
}

TEST(UpkeepTest, PruneRefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  Fill(folder / "m.db");
  const auto prune = [&](const std::string& db, const std::string& keep, const std::string& age) {
    return RunMoeplan({"profile", "prune", "--db", folder / db, "--keep", keep, "--older-than", age, "--json"});
  };
  EXPECT_EQ(prune("m.db", "0", "1d").exit_code, 2);
  EXPECT_THAT(prune("m.db", "0", "1d").err, HasSubstr("keep: found 0"));
  EXPECT_THAT(prune("m.db", "1", "soon").err, HasSubstr("--older-than: found 'soon'"));
  EXPECT_EQ(prune("absent.db", "1", "1d").exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "absent.db"));
}

TEST(UpkeepTest, ABackupIsADatabaseOfItsOwn) {
  const TemporaryFolder folder;
  Fill(folder / "m.db");
  const auto back_up = [&] {
    return RunMoeplan({"profile", "backup", "--db", folder / "m.db", "--to", folder / "copy.db", "--json"});
  };
  const Json report = JsonOf(back_up());
  EXPECT_EQ(report["file"], folder / "copy.db");
  EXPECT_EQ(report["bytes"], std::filesystem::file_size(folder / "copy.db"));
  EXPECT_EQ(RunMoeplan({"profile", "list", "--db", folder / "copy.db", "--json"}).out,
            RunMoeplan({"profile", "list", "--db", folder / "m.db", "--json"}).out);
  const Outcome again = back_up();
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(again.out, "");
  EXPECT_THAT(again.err, HasSubstr("copy.db: there is a file already"));
}

TEST(UpkeepTest, RejectedSamplesAreListedWithTheirReasons) {
  const TemporaryFolder folder;
  Fill(folder / "m.db");
  const Json list = JsonOf(RunMoeplan({"profile", "rejected", "--db", folder / "m.db", "--json"}));
  ASSERT_THAT(list["rejectedSamples"], SizeIs(3));
  const Json& newest = list["rejectedSamples"][0];
  EXPECT_EQ(newest["requestId"], "3");
  EXPECT_EQ(newest["profileName"], "a");
  EXPECT_EQ(newest["reason"], "timeS[0]: found nan");
  EXPECT_TRUE(newest["sample"]["timeS"][0].is_null());
  EXPECT_THAT(JsonOf(RunMoeplan({"profile", "rejected", "--db", folder / "m.db", "--profile-name", "b",
                                 "--json"}))["rejectedSamples"],
              SizeIs(0));
}

}  // namespace
}  // namespace moeplan::testing
