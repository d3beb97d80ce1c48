// What was acknowledged outlives kill -9, a full disk and a second writer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <set>
#include <thread>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/random_values.h"
#include "tests/db/scratch.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using std::chrono::microseconds;
using testing::SizeIs;

// Group `group` of round `round`: its contents follow from its numbers, so that both processes know them.
constexpr int kBatchesInGroup = 3;
constexpr int kSamplesInBatch = 40;
std::vector<SampleBatch> GroupOf(int round, int group) {
  std::vector<SampleBatch> batches;
  for (int i = 0; i < kBatchesInGroup; ++i) {
    SampleBatch batch = SmallBatch(StrCat(round, "/", group, "/", i), 1e-6 * (1 + group));
    batch.calibration = StrCat("round ", round);
    batch.samples.samples.resize(kSamplesInBatch, batch.samples.samples[0]);
    for (int j = 0; j < kSamplesInBatch; ++j) batch.samples.samples[j].size = 1 + group * 1000 + i * 100 + j;
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<Sample> SamplesOfGroup(int round, int group) {
  std::vector<Sample> samples;
  for (const SampleBatch& batch : GroupOf(round, group)) {
    samples.insert(samples.end(), batch.samples.samples.begin(), batch.samples.samples.end());
  }
  return samples;
}

// Appends groups until it is killed; writes a group's number to `pipe` once it is acknowledged.
int AppendForever(const std::filesystem::path& path, int round, int pipe) {
  StatusOr<Store> store = Store::Open(path);
  if (!store.ok()) return 2;
  for (int group = 0;; ++group) {
    if (!store->AppendSamples(GroupOf(round, group)).ok()) return 3;
    if (write(pipe, &group, sizeof group) != sizeof group) return 4;
  }
}

// The number of the next acknowledged group, or -1 when the writer is gone.
int NextAcknowledged(int pipe) {
  int group = -1;
  return read(pipe, &group, sizeof group) == sizeof group ? group : -1;
}

// A writer's end: `lifetime` after its start, or after its first commit.
enum class From { kStart, kFirstCommit };

// Kills a writer; the number of groups that it was told are safe.
int AcknowledgedBeforeTheKill(const std::filesystem::path& path, int round, From from, microseconds lifetime) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = Fork([&] { return AppendForever(path, round, ends[1]); });
  close(ends[1]);
  int acknowledged = from == From::kFirstCommit ? NextAcknowledged(ends[0]) + 1 : 0;
  std::this_thread::sleep_for(lifetime);
  kill(child, SIGKILL);
  EXPECT_EQ(WaitFor(child), -1) << "the writer ended by itself";
  for (int group = NextAcknowledged(ends[0]); group >= 0; group = NextAcknowledged(ends[0])) acknowledged = group + 1;
  close(ends[0]);
  return acknowledged;
}

// Every acknowledged group is whole, at most one more follows, and that one is whole too.
void ExpectWholeGroups(const std::vector<Sample>& found, int round, int acknowledged) {
  std::vector<Sample> expected;
  for (int group = 0; group < acknowledged; ++group) {
    const std::vector<Sample> samples = SamplesOfGroup(round, group);
    expected.insert(expected.end(), samples.begin(), samples.end());
  }
  if (found.size() > expected.size()) {
    const std::vector<Sample> samples = SamplesOfGroup(round, acknowledged);
    expected.insert(expected.end(), samples.begin(), samples.end());
  }
  EXPECT_EQ(found.size(), expected.size()) << "round " << round << ", " << acknowledged << " groups acknowledged";
  EXPECT_TRUE(found == expected) << "round " << round << ", " << acknowledged << " groups acknowledged";
}

std::vector<Sample> SamplesOfRound(const Store& store, int round) {
  const auto found = store.SamplesOf({.calibration = StrCat("round ", round)});
  return found.ok() ? found->front().samples.samples : std::vector<Sample>();
}

TEST(CrashTest, AcknowledgedSamplesOutliveKillMinusNine) {
  constexpr int kRounds = 30;
  RandomValues random(TestSeed());
  const ScratchFolder folder;
  std::vector<int> acknowledged;
  for (int round = 0; round < kRounds; ++round) {
    // A third of the writers die around opening the file, the others somewhere among their commits.
    const From from = round % 3 == 0 ? From::kStart : From::kFirstCommit;
    const microseconds lifetime(random.Int(0, from == From::kStart ? 10000 : 50000));
    acknowledged.push_back(AcknowledgedBeforeTheKill(folder / "store.db", round, from, lifetime));
    Store store = MustOpen(folder / "store.db");
    ExpectWholeGroups(SamplesOfRound(store, round), round, acknowledged[round]);
    // The killed request may be sent again, whether it was stored or not.
    const auto again = GroupOf(round, acknowledged[round]++);
    const AppendOutcome outcome = Must(store.AppendSamples(again));
    EXPECT_EQ(outcome.stored + outcome.repeated, kBatchesInGroup);
    EXPECT_TRUE(outcome.stored == 0 || outcome.repeated == 0);
  }
  // Later kills have not hurt earlier rounds either.
  const Store store = MustOpen(folder / "store.db");
  int total = 0;
  for (int round = 0; round < kRounds; ++round) {
    ExpectWholeGroups(SamplesOfRound(store, round), round, acknowledged[round]);
    total += acknowledged[round];
  }
  std::cout << kRounds << " kills, " << total << " groups acknowledged\n";
  EXPECT_GT(total, kRounds);
}

TEST(CrashTest, AReaderOpensWhatAKilledWriterLeft) {
  const ScratchFolder folder;
  const int acknowledged = AcknowledgedBeforeTheKill(folder / "store.db", 0, From::kFirstCommit, microseconds(20000));
  const StatusOr<Store> store = Store::OpenReadOnly(folder / "store.db");
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_GT(acknowledged, 0);
  ExpectWholeGroups(SamplesOfRound(*store, 0), 0, acknowledged);
}

constexpr int kSaves = 25;
// Both make the file, so opening races too.
int SaveAndAppend(const std::filesystem::path& path, int process) {
  StatusOr<Store> store = Store::Open(path, {.busy_timeout = std::chrono::seconds(30)});
  if (!store.ok()) {
    std::cerr << store.status().message() << std::endl;
    return 2;
  }
  for (int i = 0; i < kSaves; ++i) {
    const SampleBatch batch = SmallBatch(StrCat(process, "/", i));
    if (!store->AppendSamples({&batch, 1}).ok()) return 3;
    if (!store->SaveProfile(SmallProfile("shared")).ok()) return 4;
  }
  return 0;
}

TEST(CrashTest, TwoProcessesWriteAtOnce) {
  const ScratchFolder folder;
  const pid_t first = Fork([&] { return SaveAndAppend(folder / "store.db", 0); });
  const pid_t second = Fork([&] { return SaveAndAppend(folder / "store.db", 1); });
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const Store store = MustOpen(folder / "store.db");
  std::set<int> versions;
  for (const ProfileVersion& version : Must(store.ListProfiles()).profiles) versions.insert(version.version);
  EXPECT_THAT(versions, SizeIs(2 * kSaves));
  EXPECT_EQ(*versions.rbegin(), 2 * kSaves);
  std::set<std::string> requests;  // SmallBatch keeps the request in its provenance.
  const std::vector<Calibration> stored = Must(store.SamplesOf({}));
  for (const Sample& sample : stored[0].samples.samples) requests.insert(sample.provenance.at("hostname"));
  EXPECT_THAT(requests, SizeIs(2 * kSaves));
}

TEST(CrashTest, ManyProcessesMakeTheFileAtOnce) {
  for (int round = 0; round < 10; ++round) {
    const ScratchFolder folder;
    std::vector<pid_t> children;
    for (int process = 0; process < 6; ++process) {
      children.push_back(Fork([&] {
        const StatusOr<Store> store = Store::Open(folder / "store.db", {.busy_timeout = std::chrono::seconds(30)});
        if (!store.ok()) std::cerr << store.status().message() << std::endl;
        return store.ok() ? 0 : 1;
      }));
    }
    for (const pid_t child : children) EXPECT_EQ(WaitFor(child), 0) << "round " << round;
  }
}

// Appends until the disk refuses; leaves with the number of groups stored, or above 200 for a wrong refusal.
int AppendUntilFull(const std::filesystem::path& path, rlim_t limit_bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {limit_bytes, limit_bytes};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 201;
  StatusOr<Store> store = Store::Open(path);
  if (!store.ok()) return 202;
  for (int group = 0; group < 200; ++group) {
    const Status status = store->AppendSamples(GroupOf(0, group)).status();
    if (status.ok()) continue;
    if (status.code() == StatusCode::kUnavailable && status.message().find(path.string()) == 0) return group;
    std::cerr << status.message() << std::endl;
    return 203;
  }
  return 204;
}

TEST(CrashTest, AFullDiskIsReportedAndTakesNothingBack) {
  const ScratchFolder folder;
  const int stored = WaitFor(Fork([&] { return AppendUntilFull(folder / "store.db", 400 << 10); }));
  ASSERT_GT(stored, 0);
  ASSERT_LE(stored, 200) << "see AppendUntilFull";
  Store store = MustOpen(folder / "store.db");
  EXPECT_EQ(SamplesOfRound(store, 0).size(), static_cast<size_t>(stored * kBatchesInGroup * kSamplesInBatch));
  ExpectWholeGroups(SamplesOfRound(store, 0), 0, stored);
  EXPECT_EQ(Must(store.AppendSamples(GroupOf(0, stored))).stored, kBatchesInGroup);
}

}  // namespace
}  // namespace moeplan
