// Samples that count no more once their key was measured again, and runs that a request brought.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/store.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class RetiredTest : public testing::Test {
 protected:
  void Append(const std::string& calibration, const std::vector<Sample>& samples) {
    SampleBatch batch = SmallBatch(calibration);
    batch.calibration = calibration;
    batch.samples.samples = samples;
    ASSERT_TRUE(store_.AppendSamples({&batch, 1}).ok());
  }
  std::vector<Sample> Counting() {
    std::vector<Sample> all;
    for (const Calibration& each : Must(store_.SamplesOf({.profile_name = name_}))) {
      all.insert(all.end(), each.samples.samples.begin(), each.samples.samples.end());
    }
    return all;
  }

  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db");
  const SampleBatch example_ = SmallBatch("example");
  const std::string name_ = example_.samples.name;
  const Sample first_ = example_.samples.samples.at(0);
};

Sample WithTime(Sample sample, double time_s) {
  sample.times_s = {time_s};
  return sample;
}

TEST_F(RetiredTest, EarlierSamplesOfTheKeyCountNoMoreAndAllOthersDo) {
  Sample other = first_;
  other.key = KernelKey{.kernel = Kernel::kGate};
  other.provenance.clear();
  Append("old", {first_, other});
  Append("new", {WithTime(first_, 5)});
  Append("newer", {WithTime(first_, 6)});
  const CostKey key = first_.key;
  ASSERT_TRUE(store_.RetireSamples(name_, {&key, 1}, "new").ok());
  EXPECT_THAT(Counting(), ElementsAre(other, WithTime(first_, 5), WithTime(first_, 6)));
  ASSERT_TRUE(store_.RetireSamples(name_, {&key, 1}, "new").ok());
  EXPECT_THAT(Counting(), SizeIs(3));
  store_ = MustOpen(folder_ / "store.db");
  EXPECT_THAT(Counting(), SizeIs(3));
  // What was stored is known again all the same.
  SampleBatch again = SmallBatch("old");
  again.calibration = "old";
  again.samples.samples = {first_, other};
  EXPECT_EQ(Must(store_.AppendSamples({&again, 1})).repeated, 1);
}

TEST_F(RetiredTest, OtherNamesKeepTheirs) {
  SampleBatch other = example_;
  other.request_id = other.calibration = "of another name";
  other.samples.name = "another name";
  ASSERT_TRUE(store_.AppendSamples({&other, 1}).ok());
  Append("new", {first_});
  const CostKey key = first_.key;
  ASSERT_TRUE(store_.RetireSamples(name_, {&key, 1}, "new").ok());
  EXPECT_THAT(Must(store_.SamplesOf({.profile_name = "another name"})), SizeIs(1));
}

TEST_F(RetiredTest, ACalibrationThatIsNotThereRetiresNothing) {
  Append("old", {first_});
  const CostKey key = first_.key;
  EXPECT_EQ(store_.RetireSamples(name_, {&key, 1}, "nothing").code(), StatusCode::kNotFound);
  EXPECT_THAT(Counting(), SizeIs(1));
}

TEST_F(RetiredTest, ARequestBringsOneRun) {
  const PlanId plan = Must(store_.SavePlan({.answer = "{}"}));
  const RunRecord run = {.plan = plan, .schedule = "BASELINE", .measured_time_s = 1, .request_id = "r1"};
  const RunId first = Must(store_.SaveRun(run));
  EXPECT_EQ(Must(store_.SaveRun(run)), first);
  RunRecord without = run;
  without.request_id.clear();
  EXPECT_NE(Must(store_.SaveRun(without)), Must(store_.SaveRun(without)));
  const std::vector<RunRecord> runs = Must(store_.RunsOf(plan));
  ASSERT_THAT(runs, SizeIs(3));
  EXPECT_EQ(runs[0].request_id, "r1");
  EXPECT_EQ(runs[1].request_id, "");
}

}  // namespace
}  // namespace moeplan
