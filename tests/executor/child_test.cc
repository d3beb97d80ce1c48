#include "executor/launch/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace moeplan::executor {
namespace {

// The processors that this process may use, in order.
std::vector<int> UsableProcessors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  std::vector<int> processors;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &usable)) processors.push_back(number);
  }
  return processors;
}

// What a child in `place` says of where it may run.
std::string AllowedIn(const ChildPlace& place) {
  auto child = Child::Start({"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status"}, place);
  EXPECT_TRUE(child.ok());
  std::string text;
  char buffer[256];
  for (ssize_t count = 0; (count = read(child->read_fd(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  return text.substr(text.find('\t') + 1);
}

TEST(ChildTest, NeighboursShareAProcessorWhereRanksOutnumberThem) {
  const std::vector<int> processors = UsableProcessors();
  const int parts = 2 * static_cast<int>(processors.size());
  for (const int part : {0, 1, parts - 2, parts - 1}) {
    EXPECT_EQ(AllowedIn({.part = part, .parts = parts}), std::to_string(processors[part / 2]) + "\n")
        << "part " << part;
  }
}

TEST(ChildTest, OneRankAProcessorWhereThereAreEnough) {
  const std::vector<int> processors = UsableProcessors();
  const int parts = static_cast<int>(processors.size());
  EXPECT_EQ(AllowedIn({.part = parts - 1, .parts = parts}), std::to_string(processors.back()) + "\n");
  EXPECT_EQ(AllowedIn({.part = 0, .parts = 1}), std::to_string(processors.front()) + "\n");
}

}  // namespace
}  // namespace moeplan::executor
