// Whose a database's files are, and what counts as the name of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "db/store.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

namespace fs = std::filesystem;

// What others may do with it, in octal digits.
int ModeOf(const fs::path& path) {
  struct stat state {};
  EXPECT_EQ(stat(path.c_str(), &state), 0) << path;
  return static_cast<int>(state.st_mode & 07777);
}

// The umask while it lives.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }
  Umask(const Umask&) = delete;

 private:
  const mode_t before_;
};

TEST(PrivateTest, NewFilesAreTheirOwnersAloneWhateverTheUmask) {
  const ScratchFolder folder;
  const Umask everything_is_allowed(0);
  const fs::path path = folder / "m.db";
  Store store = MustOpen(path);
  (void)Must(store.SaveProfile(SmallProfile("a")));
  for (const char* suffix : {"", "-wal", "-shm"}) EXPECT_EQ(ModeOf(path.string() + suffix), 0600) << suffix;
  (void)Must(store.BackUp(folder / "copy.db"));
  EXPECT_EQ(ModeOf(folder / "copy.db"), 0600);
}

TEST(PrivateTest, AFileBehindALinkThatLeadsNowhereYetIsPrivateToo) {
  const ScratchFolder folder;
  const Umask everything_is_allowed(0);
  fs::create_symlink("behind.db", folder / "m.db");
  (void)MustOpen(folder / "m.db");
  EXPECT_EQ(ModeOf(folder / "behind.db"), 0600);
}

TEST(PrivateTest, TheModeOfAFileThatIsThereIsLeftAlone) {
  const ScratchFolder folder;
  const fs::path path = folder / "m.db";
  (void)MustOpen(path);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  Store store = MustOpen(path);
  (void)Must(store.SaveProfile(SmallProfile("a")));
  EXPECT_EQ(ModeOf(path), 0640);
  EXPECT_EQ(ModeOf(path.string() + "-wal"), 0640);
}

// In a folder of its own, since such names are only special to SQLite when they are relative.
class NameTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { fs::current_path(folder_.path()); }
  void TearDown() override { fs::current_path(before_); }

  const fs::path before_ = fs::current_path();
  const ScratchFolder folder_;
};

TEST_P(NameTest, IsThatOfAFile) {
  const std::string name = GetParam();
  {
    Store store = MustOpen(name);
    (void)Must(store.SaveProfile(SmallProfile("kept")));
    (void)Must(store.BackUp(name + "-copy"));
  }
  EXPECT_TRUE(fs::exists(folder_ / name));
  EXPECT_TRUE(fs::exists(folder_ / (name + "-copy")));
  EXPECT_EQ(Must(Store::OpenReadOnly(folder_ / name)->LoadProfile()).name, "kept");
  EXPECT_EQ(Must(Store::OpenReadOnly(name + "-copy")->LoadProfile()).name, "kept");
}

INSTANTIATE_TEST_SUITE_P(Special, NameTest,
                         testing::Values(":memory:", "file:x.db", "file:x.db?mode=memory", ":x", "file::memory:"));

TEST(EmptyNameTest, IsRefused) {
  EXPECT_EQ(Store::Open("").status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(Store::OpenReadOnly("").status().code(), StatusCode::kInvalidInput);
  const ScratchFolder folder;
  EXPECT_EQ(MustOpen(folder / "m.db").BackUp("").status().code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace moeplan
