// Copies of a database that is being written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "db/store.h"
#include "models/text.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

class BackUpTest : public testing::Test {
 protected:
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  ScratchFolder folder_;
  Store store_ = MustOpen(folder_ / "store.db");
};

TEST_F(BackUpTest, ACopyHoldsAllThatIsCommittedInOneFile) {
  const SampleBatch batch = SmallBatch("1");
  (void)Must(store_.AppendSamples({&batch, 1}));
  (void)Must(store_.SaveProfile(SmallProfile("a")));
  const auto bytes = Must(store_.BackUp(folder_ / "copy.db"));
  EXPECT_EQ(bytes, static_cast<std::int64_t>(fs::file_size(folder_ / "copy.db")));
  EXPECT_THAT(Files(), testing::ElementsAre("copy.db", "store.db", "store.db-shm", "store.db-wal"));
  (void)Must(store_.SaveProfile(SmallProfile("later")));
  Store copy = MustOpen(folder_ / "copy.db");
  EXPECT_EQ(Must(copy.LoadProfile()).name, "a");
  EXPECT_EQ(Must(copy.SamplesOf({}))[0].samples, batch.samples);
  EXPECT_EQ(Must(copy.AppendSamples({&batch, 1})).repeated, 1);
}

TEST_F(BackUpTest, NoFileIsOverwritten) {
  WriteBytes(folder_ / "copy.db", "precious");
  const Status refused = store_.BackUp(folder_ / "copy.db").status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(refused.message(), HasSubstr("copy.db: there is a file already"));
  EXPECT_EQ(ReadBytes(folder_ / "copy.db"), "precious");
  EXPECT_EQ(store_.BackUp(folder_ / "store.db").status().code(), StatusCode::kInvalidInput);
}

TEST_F(BackUpTest, AFolderThatIsNotThereIsNamedAndNothingIsLeft) {
  EXPECT_THAT(store_.BackUp(folder_ / "nowhere/copy.db").status().message(), HasSubstr("nowhere"));
  EXPECT_THAT(store_.BackUp("").status().message(), HasSubstr("empty path"));
  EXPECT_THAT(Files(), SizeIs(3));
}

TEST_F(BackUpTest, ADamagedDatabaseMakesNoCopy) {
  SampleBatch batch = SmallBatch("1");
  batch.samples.samples.resize(20000, batch.samples.samples[0]);
  for (Sample& sample : batch.samples.samples) sample.times_s.assign(40, 1.2345678901234567e-4);
  (void)Must(store_.AppendSamples({&batch, 1}));
  { const Store closed = std::move(store_); }
  StatusOr<Store> reader = Store::OpenReadOnly(folder_ / "store.db");
  ASSERT_TRUE(reader.ok());
  std::string bytes = ReadBytes(folder_ / "store.db");
  std::fill(bytes.begin() + std::ssize(bytes) / 4, bytes.end(), 'x');  // More than a reader keeps in memory.
  WriteBytes(folder_ / "store.db", bytes);
  EXPECT_EQ(reader->BackUp(folder_ / "copy.db").status().code(), StatusCode::kDataLoss);
  EXPECT_FALSE(fs::exists(folder_ / "copy.db"));
  EXPECT_THAT(Files(), testing::Not(testing::Contains(HasSubstr("unfinished"))));
}

// Appends requests 0, 1, 2 ... until it is told to stop; `acknowledged` says how many are in.
void AppendAlways(const fs::path& path, const std::atomic<bool>& stop, std::atomic<int>& acknowledged) {
  Store store = MustOpen(path);
  while (!stop) {
    const SampleBatch batch = SmallBatch(StrCat(acknowledged.load()));
    ASSERT_TRUE(store.AppendSamples({&batch, 1}).ok());
    ++acknowledged;
  }
}

TEST_F(BackUpTest, ACopyOfADatabaseUnderLoadIsOfOneMoment) {
  std::atomic<bool> stop = false;
  std::atomic<int> acknowledged = 0;
  std::jthread writer([&] { AppendAlways(folder_ / "store.db", stop, acknowledged); });
  for (int copy = 0; copy < 10; ++copy) {
    while (acknowledged < 5 * (copy + 1)) std::this_thread::yield();
    const int before = acknowledged;
    const fs::path to = folder_ / StrCat("copy ", copy);
    (void)Must(store_.BackUp(to));
    const int after = acknowledged + 1;  // The last one may be in and not counted yet.
    const auto samples = Must(MustOpen(to).SamplesOf({}))[0].samples.samples;
    EXPECT_GE(std::ssize(samples), before);
    EXPECT_LE(std::ssize(samples), after);
    for (int i = 0; i < std::ssize(samples); ++i) EXPECT_EQ(samples[i].provenance.at("hostname"), StrCat(i));
  }
  stop = true;
}

TEST_F(BackUpTest, ACopyThatIsKilledLeavesNoFileOfThatName) {
  SampleBatch batch = SmallBatch("1");
  batch.samples.samples.resize(50000, batch.samples.samples[0]);
  (void)Must(store_.AppendSamples({&batch, 1}));
  int finished = 0;
  for (int delay_ms = 0; delay_ms < 500; delay_ms += 50) {
    const fs::path to = folder_ / StrCat("copy ", delay_ms);
    const pid_t child = Fork([&] {
      const Store store = MustOpen(folder_ / "store.db");
      return store.BackUp(to).ok() ? 0 : 1;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    kill(child, SIGKILL);
    (void)WaitFor(child);
    if (!fs::exists(to)) continue;
    ++finished;
    EXPECT_THAT(Must(MustOpen(to).SamplesOf({}))[0].samples.samples, SizeIs(50000));
  }
  std::cout << finished << " of 10 copies were finished before the kill\n";
}

}  // namespace
}  // namespace moeplan
