// `moeplan calibrate --db` that is killed, stopped or loses a rank: nothing that it had taken is lost, and the next one
// goes on with what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "db/store.h"
#include "models/text.h"
#include "moeplan_process.h"
#include "tests/test_seed.h"

namespace moeplan::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CalibrateTest : public ::testing::Test {
 protected:
  Process Calibrate(const std::string& budget) const {
    return Process::Start({"calibrate", "--local", "2", "--db", db_, "--profile-name", "two", "--budget", budget});
  }
  std::vector<Calibration> Stored() const {
    const auto store = Store::OpenReadOnly(db_);
    if (!store.ok()) return {};
    StatusOr<std::vector<Calibration>> samples = store->SamplesOf({});
    return samples.ok() ? *std::move(samples) : std::vector<Calibration>();
  }
  size_t Samples() const {
    size_t samples = 0;
    for (const Calibration& one : Stored()) samples += one.samples.samples.size();
    return samples;
  }
  bool AwaitSamples(size_t count, const Process& process) const {
    for (const auto until = std::chrono::steady_clock::now() + seconds(60);
         std::chrono::steady_clock::now() < until && Alive(process.pid());
         std::this_thread::sleep_for(milliseconds(10))) {
      if (Samples() >= count) return true;
    }
    return false;
  }
  int Versions() const { return static_cast<int>(Store::OpenReadOnly(db_)->ListProfiles()->profiles.size()); }
  // The message counts the samples that the database holds, and gives a command that goes on.
  void ExpectToldOfAll(const Outcome& outcome) const {
    EXPECT_THAT(outcome.err,
                HasSubstr(StrCat("moeplan: samples kept: ", Samples(), ", of profile two in ", db_, "; go on with: ")));
    EXPECT_THAT(outcome.err, HasSubstr(StrCat(" calibrate --local 2 --db ", db_, " --profile-name two --budget ")));
    EXPECT_THAT(outcome.out, IsEmpty());
  }

  TemporaryFolder folder_;
  const std::string db_ = folder_ / "m.db";
};

TEST_F(CalibrateTest, KillsAtRandomMomentsLoseNothingAndTheNextGoesOn) {
  std::mt19937_64 random(TestSeed());
  size_t before = 0;
  constexpr int kKills = 6;
  for (int i = 0; i < kKills; ++i) {
    {
      const Process calibrate = Calibrate("60s");
      ASSERT_TRUE(AwaitSamples(before + 1, calibrate)) << calibrate.ErrorsSoFar();
      std::this_thread::sleep_for(milliseconds(std::uniform_int_distribution(0, 300)(random)));
    }  // By SIGKILL.
    const std::vector<Calibration> left = Stored();
    ASSERT_THAT(left, SizeIs(1)) << "each goes on with the session of the one before";
    EXPECT_GT(left[0].samples.samples.size(), before);
    before = left[0].samples.samples.size();
  }
  EXPECT_EQ(Versions(), 0);
  Process last = Calibrate("1s");
  const Outcome outcome = last.Finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr(StrCat("goes on with the calibration that was interrupted: ", before, " samples are kept")));
  EXPECT_THAT(outcome.out, HasSubstr("profile two, version 1, in "));
  EXPECT_GE(Samples(), before);
  EXPECT_THAT(Stored(), SizeIs(1));
}

TEST_F(CalibrateTest, ASignalEndsItWithAWordOnHowToGoOn) {
  for (const auto& [signal, name] : {std::pair(SIGINT, "SIGINT"), std::pair(SIGTERM, "SIGTERM")}) {
    const size_t before = Samples();
    Process calibrate = Calibrate("60s");
    ASSERT_TRUE(AwaitSamples(before + 3, calibrate)) << calibrate.ErrorsSoFar();
    kill(calibrate.pid(), signal);
    const Outcome outcome = calibrate.Finish(seconds(20));
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    ExpectToldOfAll(outcome);
    EXPECT_THAT(outcome.err, HasSubstr(StrCat("moeplan: stopped by ", name)));
  }
  EXPECT_EQ(Versions(), 0);
}

TEST_F(CalibrateTest, ARankThatDiesLeavesWhatWasTaken) {
  Process calibrate = Calibrate("60s");
  const std::vector<pid_t> ranks = calibrate.AwaitChildren(2);
  ASSERT_THAT(ranks, SizeIs(2));
  ASSERT_TRUE(AwaitSamples(3, calibrate)) << calibrate.ErrorsSoFar();
  kill(ranks[1], SIGKILL);
  const Outcome outcome = calibrate.Finish(seconds(60));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  ExpectToldOfAll(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
}

// All samples of the name are fitted, those of a calibration that ended with them; one that ended is not gone on with.
TEST_F(CalibrateTest, ASecondCalibrationAddsToTheFirst) {
  Process first = Calibrate("1s");
  ASSERT_EQ(first.Finish().exit_code, 0);
  const size_t of_first = Samples();
  Process second = Calibrate("1s");
  const Outcome outcome = second.Finish();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("goes on")));
  EXPECT_THAT(outcome.out, HasSubstr("profile two, version 2, in "));
  EXPECT_THAT(Stored(), SizeIs(2));
  EXPECT_GT(Samples(), of_first);
}

TEST_F(CalibrateTest, SamplesOfACalibrationThatNeverEndedBelongToOneClusterToo) {
  {
    const Process calibrate = Calibrate("60s");
    ASSERT_TRUE(AwaitSamples(1, calibrate)) << calibrate.ErrorsSoFar();
  }
  const Outcome other =
      RunMoeplan({"calibrate", "--local", "3", "--db", db_, "--profile-name", "two", "--budget", "1s"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--profile-name: found two, which is of 1 nodes of 2 GPUs, for 1 of 3"));
}

}  // namespace
}  // namespace moeplan::testing
