// An agent against a real planner: its ranks and what is measured with them are scripted.
#include "agent/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "executor/launch/frames.h"
#include "executor/owned_fd.h"
#include "models/text.h"
#include "planner/client/agent_connection.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::SizeIs;

std::chrono::steady_clock::time_point Soon() { return std::chrono::steady_clock::now() + seconds(20); }

// One rank, played by the test.
class ScriptedLaunch final : public executor::Launch {
 public:
  struct Ends {
    executor::OwnedFd commands, answers;  // To read, to write.
  };

  explicit ScriptedLaunch(Ends& ends) {
    for (auto [read, write] : {std::pair(&ends.commands, &write_), std::pair(&read_, &ends.answers)}) {
      int fds[2] = {-1, -1};
      EXPECT_EQ(pipe(fds), 0);
      *read = executor::OwnedFd(fds[0]);
      *write = executor::OwnedFd(fds[1]);
    }
  }

  int nodes() const override { return 1; }
  int ranks_per_node() const override { return 1; }
  int WriteFd(int) const override { return write_.get(); }
  int ReadFd(int) const override { return read_.get(); }
  std::string EndOf(int) override { return ""; }
  int ProcessOf(int) const override { return 0; }

 private:
  executor::OwnedFd read_, write_;
};

class NodeAgentTest : public ServiceTest {
 protected:
  agent::NodeAgentOptions Agent(const std::string& planner) {
    agent::NodeAgentOptions options = {.connect = client::ConnectAgentWith({.address = planner}),
                                       .planner = planner,
                                       .stop_fd = stop_.get(),
                                       .first_pause_s = 0.01,
                                       .longest_pause_s = 0.05,
                                       .log = [this](std::string_view line) {
                                         const std::scoped_lock lock(log_mutex_);
                                         log_.emplace_back(line);
                                       }};
    v1::AgentRegistration& agent = options.registration;
    agent.set_name("a");
    agent.set_version(MOEPLAN_VERSION);
    agent.set_instance("i");
    agent.set_cluster("c");
    agent.set_nodes(1);
    agent.set_held_nodes(1);
    agent.set_ranks_per_node(1);
    agent.set_backend("scripted");
    return options;
  }
  // An agent on a thread of its own; told to stop with its owner, also when a test gives up.
  class Running {
   public:
    Running(agent::NodeAgentOptions options, int stop_fd)
        : stop_fd_(stop_fd), end_(std::async(std::launch::async, [given = std::move(options)]() mutable {
            return agent::RunNodeAgent(std::move(given));
          })) {}
    Running(const Running&) = delete;
    ~Running() { (void)Stop(); }

    // How it ended.
    Status Stop() {
      const uint64_t one = 1;
      EXPECT_EQ(write(stop_fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
      return end_.valid() ? end_.get() : OkStatus();
    }

   private:
    const int stop_fd_;
    std::future<Status> end_;
  };
  std::vector<std::string> log() {
    const std::scoped_lock lock(log_mutex_);
    return log_;
  }
  static int StartCalibration(const Server& server) {
    v1::StartCalibrationRequest request;
    request.set_request_id("r");
    request.set_cluster("c");
    const auto started = ClientOf(server)->StartCalibration(request);
    EXPECT_TRUE(started.ok()) << started.status().message();
    return started.ok() ? started->calibration() : 0;
  }
  static v1::RankCommand Command(int repeats) {
    v1::RankCommand command;
    command.mutable_measure()->set_repeats(repeats);
    return command;
  }

  executor::OwnedFd stop_ = executor::OwnedFd(eventfd(0, EFD_CLOEXEC));
  std::mutex log_mutex_;
  std::vector<std::string> log_;  // Guarded by log_mutex_.
};

TEST_F(NodeAgentTest, WhatKeptRanksStillOweToAnEndedSessionIsNotForTheNext) {
  std::promise<double> answered;
  std::atomic<int> sessions = 0;
  ServerOptions options = Options();
  options.agents.driver = [&](const RelayedRanks& ranks, const CalibrationWork&) -> Status {
    const bool first = sessions++ == 0;
    (void)ranks.links->Send(std::vector{Command(first ? 1 : 2)});
    if (first) return Unavailable("again");  // Without waiting for what it has asked.
    EXPECT_THAT(ranks.links->Await({true}, Soon()), SizeIs(1));
    const auto reply = ranks.links->Receive(0);
    answered.set_value(reply.ok() ? reply->measured().time_s(0) : -1);
    return Infeasible("enough");
  };
  const auto server = Started(options);
  ScriptedLaunch::Ends rank;
  agent::NodeAgentOptions agent = Agent(server->grpc_address());
  agent.kept_ranks = std::make_unique<ScriptedLaunch>(rank);
  Running running(std::move(agent), stop_.get());
  (void)StartCalibration(*server);
  for (const int repeats : {1, 2}) {
    const auto frame = executor::ReadFrame(rank.commands.get(), Soon());
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    v1::RankCommand command;
    ASSERT_TRUE(command.ParseFromString(*frame));
    EXPECT_EQ(command.measure().repeats(), repeats);
  }
  for (const double time_s : {1.0, 2.0}) {
    v1::RankReply reply;
    reply.mutable_measured()->add_time_s(time_s);
    ASSERT_TRUE(executor::WriteFrame(rank.answers.get(), reply.SerializeAsString()).ok());
  }
  EXPECT_EQ(answered.get_future().get(), 2.0);
  EXPECT_EQ(running.Stop(), OkStatus());
}

TEST_F(NodeAgentTest, RanksThatCannotBeStartedAreSaidWhereTheyAreWaitedFor) {
  std::promise<std::string> end;
  ServerOptions options = Options();
  options.agents.driver = [&](const RelayedRanks& ranks, const CalibrationWork&) -> Status {
    EXPECT_THAT(ranks.links->Await({true}, Soon()), SizeIs(1));
    end.set_value(ranks.links->EndOf(0));
    return Infeasible("enough");
  };
  const auto server = Started(options);
  agent::NodeAgentOptions agent = Agent(server->grpc_address());
  agent.launch = []() -> StatusOr<std::unique_ptr<executor::Launch>> { return Unavailable("no program"); };
  Running running(std::move(agent), stop_.get());
  (void)StartCalibration(*server);
  EXPECT_EQ(end.get_future().get(), "not started: no program at agent a (cluster c, node 0)");
  EXPECT_EQ(running.Stop(), OkStatus());
}

TEST_F(NodeAgentTest, ItTriesForEverAndSaysWhatIsWrongOnce) {
  std::string address;
  {
    const auto server = Started();
    address = server->grpc_address();
  }
  agent::NodeAgentOptions agent = Agent(address);
  agent.launch = []() -> StatusOr<std::unique_ptr<executor::Launch>> { return Unavailable("not asked for"); };
  Running running(std::move(agent), stop_.get());
  // Some twenty tries.
  std::this_thread::sleep_for(seconds(1));
  ASSERT_THAT(log(), SizeIs(1));
  EXPECT_THAT(log()[0], HasSubstr(StrCat("no planner answers at ", address)));
  ServerOptions options = Options();
  options.grpc_address = address;
  const auto server = Started(options);
  for (const auto until = Soon(); log().size() < 2 && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(log().back(), StrCat("connected to the planner at ", address));
  EXPECT_EQ(running.Stop(), OkStatus());
}

TEST_F(NodeAgentTest, AnotherVersionEndsIt) {
  ServerOptions options = Options();
  options.agents.version = "9.9.9";
  const auto server = Started(options);
  agent::NodeAgentOptions agent = Agent(server->grpc_address());
  agent.launch = []() -> StatusOr<std::unique_ptr<executor::Launch>> { return Unavailable("not asked for"); };
  const Status refused = agent::RunNodeAgent(std::move(agent));
  EXPECT_EQ(refused.code(), StatusCode::kInfeasible);
  EXPECT_THAT(refused.message(), HasSubstr("agent a is of version " MOEPLAN_VERSION
                                           " and this planner of version 9.9.9; install the same version"));
}

}  // namespace
}  // namespace moeplan::service
