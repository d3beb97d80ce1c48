// A forked job on a simulated cluster: commands, answers, and how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "executor/launch/frames.h"
#include "executor/sim/launch_simulated.h"
#include "models/text.h"
#include "tests/executor/sim_cluster.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using testing::SmallCluster;
using Clock = std::chrono::steady_clock;

// Answers each command with the time at which a copy, an all-gather of that many bytes and a copy have ended; noise
// makes times tell in which order ranks came.
RankHandler GatherHandler(int rank, const RankBackend& backend) {
  struct State {
    std::unique_ptr<RankJoin> join;
    std::unique_ptr<Rank> self;
    DeviceMemory part, all;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> end;
  };
  const auto state = std::make_shared<State>();
  state->join = *backend.Join({.rank = rank, .ranks = 4});
  state->self = *state->join->Connect({});
  Device& device = state->self->device();
  state->part = *device.Allocate(1 << 20);
  state->all = *device.Allocate(4 << 20);
  state->stream = device.MakeStream("COMPUTE", StreamPriority::kNormal);
  state->end = device.MakeEvent();
  return [state](const std::string& command) -> std::string {
    if (command == "nothing") return "";
    if (command == "hang") pause();
    const size_t bytes = std::stoul(command);
    Device& device = state->self->device();
    device.Copy(state->all.data(), state->part.data(), bytes, *state->stream);
    state->self->world().AllGather({state->part.data(), bytes}, {state->all.data(), 4 * bytes}, *state->stream);
    device.Copy(state->part.data(), state->all.data(), bytes, *state->stream);
    device.Record(*state->end, *state->stream);
    const Status status = device.Synchronize();
    return status.ok() ? StrCat(device.TimeS(*state->end)) : status.message();
  };
}

SimulatedCluster NoisyCluster() {
  SimulatedCluster cluster = SmallCluster();
  cluster.noise = {.compute_sigma = 0.3, .transfer_sigma = 0.3, .seed = 3};
  return cluster;
}

std::string Read(const Launch& launch, int rank) {
  const auto answer = ReadFrame(launch.ReadFd(rank), Clock::now() + std::chrono::seconds(60));
  return answer.ok() ? *answer : StrCat("no answer: ", answer.status().message());
}

// What each rank answers to each of `commands`, written in the order of `ranks`.
std::vector<std::string> Answers(const std::vector<std::string>& commands, const std::vector<int>& ranks) {
  const auto launch = LaunchSimulated(NoisyCluster(), /*data=*/false, GatherHandler);
  EXPECT_TRUE(launch.ok()) << launch.status().message();
  std::vector<std::string> answers;
  for (const std::string& command : commands) {
    for (const int rank : ranks) EXPECT_TRUE(WriteFrame((*launch)->WriteFd(rank), command).ok());
    for (int rank = 0; rank < 4; ++rank) answers.push_back(Read(**launch, rank));
  }
  return answers;
}

TEST(SimLaunchTest, AnswersDoNotDependOnTheOrderInWhichCommandsCome) {
  const std::vector<std::string> commands = {"1000", "nothing", "1000000", "5000"};
  const std::vector<std::string> in_order = Answers(commands, {0, 1, 2, 3});
  EXPECT_EQ(Answers(commands, {3, 1, 0, 2}), in_order);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(in_order[4 + rank], "");
    EXPECT_GT(std::stod(in_order[8 + rank]), std::stod(in_order[rank]));
  }
}

TEST(SimLaunchTest, EndsWithItsLaunch) {
  pid_t child = 0;
  {
    const auto launch = LaunchSimulated(SmallCluster(), /*data=*/false, GatherHandler);
    ASSERT_TRUE(launch.ok()) << launch.status().message();
    EXPECT_EQ((*launch)->ranks(), 4);
    child = (*launch)->ProcessOf(2);
    EXPECT_EQ((*launch)->EndOf(2), "");
    EXPECT_EQ(kill(child, 0), 0);
  }
  EXPECT_NE(kill(child, 0), 0);
}

TEST(SimLaunchTest, SaysHowItEnded) {
  const auto launch = LaunchSimulated(SmallCluster(), /*data=*/false, GatherHandler);
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  kill((*launch)->ProcessOf(0), SIGKILL);
  EXPECT_THAT(Read(**launch, 1), ::testing::HasSubstr("closed its stream"));
  while ((*launch)->EndOf(1).empty()) {
  }
  EXPECT_EQ((*launch)->EndOf(3), "killed by signal 9");
}

TEST(SimLaunchTest, DiesWithTheProcessThatLaunchedIt) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto launch = LaunchSimulated(SmallCluster(), /*data=*/false, GatherHandler);
    const pid_t child = (*launch)->ProcessOf(0);
    // Busy, it does not look at its streams.
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(WriteFrame((*launch)->WriteFd(rank), "hang").ok());
    if (write(pipe_fds[1], &child, sizeof child) != sizeof child) _exit(1);
    pause();
  }
  close(pipe_fds[1]);
  pid_t child = 0;
  ASSERT_EQ(read(pipe_fds[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // The simulator holds the pipe open as long as it lives.
  pollfd closed = {.fd = pipe_fds[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&closed, 1, /*timeout=*/20000), 1);
  kill(child, SIGKILL);
  close(pipe_fds[0]);
}

TEST(SimLaunchTest, ABadClusterIsRefused) {
  SimulatedCluster cluster = SmallCluster();
  cluster.nic.bytes_per_s = 0;
  EXPECT_THAT(LaunchSimulated(cluster, false, GatherHandler).status().message(),
              ::testing::HasSubstr("nic.bytesPerS: found 0"));
}

}  // namespace
}  // namespace moeplan::executor
