// Files, children and shorthands of the store's tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>

#include "db/store.h"

namespace moeplan {

// A folder of its own that goes away with it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string ReadBytes(const std::filesystem::path& path);
void WriteBytes(const std::filesystem::path& path, const std::string& bytes);

// Forks; the child runs `body` and leaves with what it returns, never returning here.
pid_t Fork(const std::function<int()>& body);
// The exit status of a child, or -1 when a signal ended it.
int WaitFor(pid_t child);

// Gives up root's power over file permissions. For a child; nothing to do for a test that runs as a user.
void BecomeNobody();

// Fails the test, and gives up, when the store does not open.
Store MustOpen(const std::filesystem::path& path, StoreOptions options = {});

// The value of a StatusOr, or a test failure with its message.
template <typename T>
T Must(StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *std::move(value) : T{};
}

// A small valid profile and batch, for tests that are about something else.
Profile SmallProfile(const std::string& name);
SampleBatch SmallBatch(const std::string& request_id, double time_s = 1e-3);

}  // namespace moeplan
