// What is listed of a store: samples, overviews, runs.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Key = CostKey;
const Key kGate = KernelKey{.kernel = Kernel::kGate};
const Key kCopy = KernelKey{.kernel = Kernel::kDeviceCopy};
const Key kCopyOf2 = KernelKey{.kernel = Kernel::kDeviceCopy, .bytes_per_element = 2};

Sample Taken(const Key& key, double size) { return {.key = key, .size = size, .times_s = {size * 1e-9}}; }

class ListingTest : public testing::Test {
 protected:
  void Append(const std::string& name, const std::string& request_id, const std::string& calibration,
              std::vector<Sample> samples, std::vector<Rejection> rejected = {}) {
    const SampleBatch batch = {
        .request_id = request_id,
        .calibration = calibration,
        .samples = {.name = name, .cluster = {.nodes = 2, .gpus_per_node = 4}, .samples = samples},
        .rejected = std::move(rejected)};
    const auto outcome = store_.AppendSamples({&batch, 1});
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    now_ += std::chrono::seconds(1);
  }

  std::vector<double> SizesOfPages(int size, const std::optional<Key>& key = {}) {
    std::vector<double> sizes;
    PageRequest page = {.size = size};
    do {
      const SamplePage found = Must(store_.ListSamples(page, "a", key));
      EXPECT_LE(std::ssize(found.samples), size);
      for (const StoredSample& stored : found.samples) sizes.push_back(stored.sample.size);
      page.token = found.next_token;
    } while (!page.token.empty());
    return sizes;
  }

  // As a disk that lies would.
  void Spoil(const std::string& statement) { SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec(statement); }

  ScratchFolder folder_;
  const std::filesystem::path path_ = folder_ / "store.db";
  std::chrono::system_clock::time_point now_ = std::chrono::sys_days{std::chrono::year{2026} / 1 / 31};
  Store store_ = MustOpen(path_, {.now = [this] { return now_; }});
};

// ---- Samples.

TEST_F(ListingTest, SamplesComeInTheOrderReceivedWhateverTheirSessionAndThePage) {
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kCopy, 2)});
  Append("b", "2", "elsewhere", {Taken(kGate, 100)});
  Append("a", "3", "tuesday", {Taken(kGate, 3)});
  Append("a", "4", "monday", {Taken(kCopy, 4), Taken(kCopyOf2, 5), Taken(kGate, 6)});
  for (const int size : {1, 2, 3, 4, 6, 1000}) EXPECT_THAT(SizesOfPages(size), ElementsAre(1, 2, 3, 4, 5, 6)) << size;
  for (const int size : {1, 2, 3}) EXPECT_THAT(SizesOfPages(size, kGate), ElementsAre(1, 3, 6)) << size;
  EXPECT_THAT(SizesOfPages(1, kCopy), ElementsAre(2, 4));  // Not that of two bytes an element.
  EXPECT_THAT(SizesOfPages(1, kCopyOf2), ElementsAre(5));
  const StoredSample third = Must(store_.ListSamples({}, "a")).samples.at(2);
  EXPECT_EQ(third.request_id, "3");
  EXPECT_EQ(third.calibration, "tuesday");
  EXPECT_EQ(third.received_at, "2026-01-31T00:00:02Z");
  EXPECT_FALSE(third.retired);
}

TEST_F(ListingTest, SamplesOfAKeyAreAllOfItWithThoseRetired) {
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kCopy, 2)});
  Append("a", "2", "tuesday", {Taken(kGate, 3)});
  ASSERT_TRUE(store_.RetireSamples("a", {&kGate, 1}, "tuesday").ok());
  const KeySamples gates = Must(store_.SamplesOfKey("a", kGate));
  ASSERT_THAT(gates.times, SizeIs(2));
  EXPECT_TRUE(gates.times[0].retired);
  EXPECT_FALSE(gates.times[1].retired);
  EXPECT_EQ(gates.times[1].size, 3);
  EXPECT_THAT(gates.times[1].times_s, ElementsAreArray(Taken(kGate, 3).times_s));
  EXPECT_FALSE(Must(store_.SamplesOfKey("a", kCopy)).times.at(0).retired);
  EXPECT_THAT(Must(store_.SamplesOfKey("nobody", kGate)).times, IsEmpty());
}

TEST_F(ListingTest, OfManySamplesOfAKeyAFewAreGivenWithTheirOriginsEachOnce) {
  const auto taken_on = [](const char* host, const Key& key, double size) {
    Sample sample = Taken(key, size);
    sample.provenance["hostname"] = host;
    return sample;
  };
  for (int batch = 0; batch < 4; ++batch) {
    Append("a", StrCat("batch ", batch), "monday",
           {taken_on("x", kGate, 3 * batch + 1), Taken(kCopy, 100), taken_on("x", kGate, 3 * batch + 2),
            taken_on("y", kGate, 3 * batch + 3)});
  }
  const Key key = kGate;
  const KeySamples every = Must(store_.SamplesOfKey("a", key));
  ASSERT_THAT(every.times, SizeIs(12));
  for (size_t i = 0; i < every.times.size(); ++i) {
    EXPECT_EQ(every.times[i].size, static_cast<double>(i + 1));
    EXPECT_THAT(every.times[i].times_s, ElementsAreArray(Taken(key, every.times[i].size).times_s));
    const KeySamples::Origin& origin = every.origins.at(every.origin_of.at(i));
    EXPECT_EQ(origin.request_id, StrCat("batch ", i / 3));
    EXPECT_EQ(origin.calibration, "monday");
    EXPECT_EQ(origin.provenance.at("hostname"), i % 3 == 2 ? "y" : "x");
  }
  EXPECT_THAT(every.origins, SizeIs(8));
  EXPECT_EQ(every.origins[2].received_at, Must(store_.ListSamples({}, "a", key)).samples.at(3).received_at);

  const auto choose = [](const KeySamples& /*all*/) { return std::vector<size_t>{0, 1, 11}; };
  const KeySamples few = Must(store_.SamplesOfKey("a", key, {}, choose));
  ASSERT_THAT(few.times, SizeIs(12));
  EXPECT_THAT(few.places, ElementsAre(0, 1, 11));
  EXPECT_THAT(few.origin_of, ElementsAre(0, 0, 1));
  EXPECT_THAT(few.origins, ElementsAre(every.origins[0], every.origins[7]));
  // Nothing has come between.
  EXPECT_EQ(few.parts, every.parts);
  Append("a", "later", "monday", {Taken(kGate, 13)});
  EXPECT_NE(Must(store_.SamplesOfKey("a", key)).parts, every.parts);
}

// What is remembered of batches is what they hold, whatever comes and goes between two looks.
TEST_F(ListingTest, EveryLookAtAKeyFindsTheSamplesListedOfIt) {
  std::mt19937_64 random(TestSeed());
  const std::vector<Key> keys = {kGate, kCopy, kCopyOf2, CollectiveKey{.group = {2, 1}},
                                 CollectiveKey{.group = {2, 1}, .ctas = 4}};
  const auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  for (int round = 0; round < 30; ++round) {
    std::vector<Sample> samples;
    for (int i = below(12); i >= 0; --i) {
      // Side by side as often as not.
      const Key& key = samples.empty() || below(2) == 0 ? keys[below(std::ssize(keys))] : samples.back().key;
      samples.push_back(Taken(key, 1 + below(1000)));
    }
    Append("a", StrCat("round ", round), "monday", samples);
    if (round % 7 == 6) {
      for (int version = 0; version < 2; ++version) (void)Must(store_.SaveProfile(SmallProfile("a")));
      EXPECT_GT(Must(store_.PruneProfiles({.keep = 1, .profile_name = "a", .samples = true})).samples, 0);
      Append("a", StrCat("again ", round), "tuesday", {Taken(keys[below(std::ssize(keys))], 7)});
    }
    for (const Key& key : keys) {
      const KeySamples of_key = Must(store_.SamplesOfKey("a", key));
      std::vector<double> found;
      for (const auto& one : of_key.times) {
        found.push_back(one.size);
        EXPECT_THAT(one.times_s, ElementsAreArray(Taken(key, one.size).times_s));
      }
      EXPECT_EQ(found, SizesOfPages(1000, key));
    }
  }
}

TEST_F(ListingTest, SamplesOfAVersionAreThoseThatItsFitCouldKnow) {
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kGate, 2)});
  Must(store_.SaveProfile({.name = "a", .cluster = {.nodes = 2, .gpus_per_node = 4}}));
  Append("a", "2", "tuesday", {Taken(kGate, 3)});
  ASSERT_TRUE(store_.RetireSamples("a", {&kGate, 1}, "tuesday").ok());
  Must(store_.SaveProfile({.name = "a", .cluster = {.nodes = 2, .gpus_per_node = 4}}));
  Append("a", "3", "wednesday", {Taken(kGate, 4), Taken(kCopy, 5), Taken(kGate, 6)});

  const KeySamples first = Must(store_.SamplesOfKey("a", kGate, 1));
  ASSERT_THAT(first.times, SizeIs(2));
  EXPECT_FALSE(first.times[0].retired);  // It was not yet.
  EXPECT_EQ(first.later, 3);
  const KeySamples second = Must(store_.SamplesOfKey("a", kGate, 2));
  ASSERT_THAT(second.times, SizeIs(3));
  EXPECT_TRUE(second.times[0].retired);
  EXPECT_FALSE(second.times[2].retired);
  EXPECT_EQ(second.later, 2);
  EXPECT_EQ(Must(store_.SamplesOfKey("a", kGate)).later, 0);
}

TEST_F(ListingTest, WrongPagesAndNamesOfSamplesAreRefused) {
  Append("a", "1", "monday", {Taken(kGate, 1)});
  EXPECT_EQ(store_.ListSamples({}, "b").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Must(store_.ListSamples({}, "a", kCopy)).samples, IsEmpty());
  EXPECT_THAT(store_.ListSamples({.size = 1001}, "a").status().message(), HasSubstr("pageSize: found 1001"));
  for (const char* token : {"1", "x", "1.", ".1", "1.x", "0.1", "1.-1", "1.1.1", "1.1 "}) {
    EXPECT_THAT(store_.ListSamples({.token = token}, "a").status().message(), HasSubstr("pageToken: found")) << token;
  }
}

TEST_F(ListingTest, RejectedSamplesOfOneKeyAreThoseAlone) {
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kCopy, 2), Taken(kGate, 3)},
         {{.sample = 0, .reason = "no"}, {.sample = 1, .reason = "no"}});
  const RejectedPage gates = Must(store_.ListRejectedSamples({}, "a", kGate));
  ASSERT_THAT(gates.samples, SizeIs(1));
  EXPECT_EQ(gates.samples[0].sample.size, 1);
  EXPECT_THAT(Must(store_.ListRejectedSamples({}, "a")).samples, SizeIs(2));
  EXPECT_EQ(Must(store_.CountRejectedSamples("a", kGate)), 1);
  EXPECT_EQ(Must(store_.CountRejectedSamples("a", kCopy)), 1);
  EXPECT_EQ(Must(store_.CountRejectedSamples("b", kGate)), 0);
}

// ---- Overviews.

CostModel WithErrors(double p50, double p95) {
  CostModel model = MakeCostModel(AlphaBeta{1e-6, 1e-9});
  model.fit.emplace();
  model.fit->relative_error_p50 = p50;
  model.fit->relative_error_p95 = p95;
  return model;
}

TEST_F(ListingTest, AnOverviewIsOfTheNewestVersionOfEachName) {
  Profile profile = SmallProfile("a");  // One collective, one kernel, neither fitted.
  (void)Must(store_.SaveProfile(profile));
  (void)Must(store_.SaveProfile(SmallProfile("b")));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  profile.cluster.nodes = 4;
  profile.collectives[0].model = WithErrors(0.02, kInfinity);
  profile.kernels.push_back({{.kernel = Kernel::kGate}, WithErrors(0.04, 0.1)});
  now_ += std::chrono::hours(1);
  (void)Must(store_.SaveProfile(profile));
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kGate, 2), Taken(kGate, 3)}, {{.sample = 1, .reason = "no"}});
  Append("a", "2", "tuesday", {Taken(kGate, 4)}, {{.sample = 0, .reason = "no"}});

  const OverviewPage page = Must(store_.ListOverviews());
  ASSERT_THAT(page.profiles, SizeIs(2));
  EXPECT_EQ(page.next_token, "");
  const ProfileOverview& a = page.profiles[0];
  EXPECT_EQ(a.newest, (ProfileVersion{.name = "a", .version = 2, .created_at = "2026-01-31T01:00:00Z"}));
  EXPECT_EQ(a.versions, 2);
  EXPECT_EQ(a.cluster.nodes, 4);
  EXPECT_EQ(a.collectives, 1);
  EXPECT_EQ(a.kernels, 2);
  EXPECT_EQ(a.samples, 2);
  EXPECT_EQ(a.rejected_samples, 2);
  EXPECT_EQ(a.last_sample_at, "2026-01-31T01:00:00Z");  // The later batch was rejected whole.
  EXPECT_THAT(a.errors, ElementsAre(CostErrors{profile.collectives[0].key, 0.02, kInfinity},
                                    CostErrors{KernelKey{.kernel = Kernel::kGate}, 0.04, 0.1}));
  const ProfileOverview& b = page.profiles[1];
  EXPECT_EQ(b.newest.name, "b");
  EXPECT_EQ(b.samples, 0);
  EXPECT_EQ(b.last_sample_at, "");
  EXPECT_THAT(b.errors, IsEmpty());
}

TEST_F(ListingTest, OverviewsComeInPages) {
  for (const char* name : {"a", "b", "c", "a"}) (void)Must(store_.SaveProfile(SmallProfile(name)));
  const OverviewPage first = Must(store_.ListOverviews({.size = 2}));
  ASSERT_THAT(first.profiles, SizeIs(2));
  EXPECT_EQ(first.profiles[0].newest.name, "a");
  EXPECT_EQ(first.profiles[1].newest.name, "c");
  const OverviewPage rest = Must(store_.ListOverviews({.size = 2, .token = first.next_token}));
  ASSERT_THAT(rest.profiles, SizeIs(1));
  EXPECT_EQ(rest.profiles[0].newest.name, "b");
  EXPECT_EQ(rest.next_token, "");
}

// ---- Runs.

TEST_F(ListingTest, RunsComeNewestFirstWithTheirPlans) {
  for (const char* name : {"a", "b"}) (void)Must(store_.SaveProfile(SmallProfile(name)));
  const PlanId of_a = Must(store_.SavePlan({.profile_name = "a", .profile_version = 1, .answer = "1"}));
  const PlanId of_b = Must(store_.SavePlan({.profile_name = "b", .profile_version = 1, .answer = "2"}));
  std::vector<RunId> ids;
  for (const PlanId plan : {of_a, of_b, of_a, of_a}) {
    ids.push_back(Must(store_.SaveRun({.plan = plan, .schedule = "PIPELINE", .predicted_time_s = 1e-3})));
  }
  const RunPage first = Must(store_.ListRuns({.size = 2}));
  ASSERT_THAT(first.runs, SizeIs(2));
  EXPECT_EQ(first.runs[0].id, ids[3]);
  EXPECT_EQ(first.runs[1].id, ids[2]);
  EXPECT_THAT(first.plans, SizeIs(1));
  EXPECT_EQ(first.plans.at(of_a.value), Must(store_.LoadPlan(of_a)));
  const RunPage rest = Must(store_.ListRuns({.size = 2, .token = first.next_token}));
  ASSERT_THAT(rest.runs, SizeIs(2));
  EXPECT_EQ(rest.runs[0].id, ids[1]);
  EXPECT_THAT(rest.plans, SizeIs(2));
  EXPECT_EQ(rest.next_token, "");
  const RunPage those_of_b = Must(store_.ListRuns({}, "b"));
  ASSERT_THAT(those_of_b.runs, SizeIs(1));
  EXPECT_EQ(those_of_b.runs[0].run, Must(store_.RunsOf(of_b)).at(0));
  EXPECT_EQ(Must(store_.LoadRun(ids[1])),
            (StoredRun{ids[1], Must(store_.RunsOf(of_b)).at(0), Must(store_.LoadPlan(of_b))}));
  EXPECT_EQ(store_.LoadRun({99}).status().code(), StatusCode::kNotFound);
}

// ---- Damage.

TEST_F(ListingTest, ValuesThatChangedAreReportedAndNotListed) {
  Append("a", "1", "monday", {Taken(kGate, 1), Taken(kCopy, 2)});
  Append("a", "2", "tuesday", {Taken(kGate, 3)});
  (void)Must(store_.SaveProfile(SmallProfile("a")));
  const PlanId plan = Must(store_.SavePlan({.profile_name = "a", .profile_version = 1, .answer = "x"}));
  const RunId run = Must(store_.SaveRun({.plan = plan, .schedule = "PIPELINE"}));
  const auto is_damaged = [](const auto& answer) { return answer.status().code() == StatusCode::kDataLoss; };
  Spoil("UPDATE sample SET size = 5 WHERE batch_id = 2");
  EXPECT_TRUE(is_damaged(store_.ListSamples({}, "a")));
  EXPECT_TRUE(is_damaged(store_.SamplesOfKey("a", kGate)));
  EXPECT_TRUE(store_.SamplesOfKey("a", kCopy).ok());  // Of the sound batch.
  // What was held against its digest lately is shown as it stands, and refused to whoever lists or fits.
  EXPECT_TRUE(store_.SamplesOfKey("a", kCopy).ok());
  Spoil("UPDATE sample SET size = 5 WHERE batch_id = 1");
  EXPECT_TRUE(store_.SamplesOfKey("a", kCopy).ok());
  EXPECT_TRUE(is_damaged(store_.ListSamples({}, "a")));
  EXPECT_TRUE(is_damaged(store_.SamplesOf({.profile_name = "a"})));
  Spoil("UPDATE cost_model SET model = replace(model, '1e-05', '2e-05')");
  EXPECT_TRUE(is_damaged(store_.ListOverviews()));
  Spoil("UPDATE plan SET answer = 'y'");
  EXPECT_TRUE(is_damaged(store_.ListRuns()));
  EXPECT_TRUE(is_damaged(store_.LoadRun(run)));
}

}  // namespace
}  // namespace moeplan
