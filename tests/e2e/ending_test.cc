// A planner that is told to end, while work goes on that does not look whether it was told to stop.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "models/text.h"
#include "planner/client/planner_client.h"
#include "proto/json.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Serves with a schedule whose rule never answers (stuck_extension.cc), and asks for a plan.
class EndingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ =
        std::make_unique<Process>(Process::Start({"serve", "--db", folder_ / "m.db", "--grpc", "127.0.0.1:0", "--http",
                                                  "127.0.0.1:0", "--extension", MOEPLAN_STUCK_EXTENSION}));
    address_ = AwaitAddress(*server_);
    ASSERT_FALSE(address_.empty()) << server_->ErrorsSoFar();
    v1::PutProfileRequest put;
    put.set_request_id("a");
    *put.mutable_profile() = *ReadJsonFile<v1::Profile>(kContract + "profile.example.json");
    ASSERT_TRUE(Client(60)->PutProfile(put).ok());
    ASSERT_TRUE(InProgress(0));
  }

  std::unique_ptr<client::PlannerClient> Client(double deadline_s) const {
    auto client = client::PlannerClient::Connect({.address = address_, .deadline_s = deadline_s});
    EXPECT_TRUE(client.ok()) << client.status().message();
    return client.ok() ? *std::move(client) : nullptr;
  }

  std::future<Status> Ask(double deadline_s) const {
    return std::async(std::launch::async, [client = Client(deadline_s)] {
      v1::PlanRequest request;
      *request.mutable_workload() = *ReadJsonFile<v1::Workload>(kContract + "workload.example.json");
      return client->Plan(request).status();
    });
  }

  // Until a worker has the plan's search: a planner of two workers or more still answers others. Ask when nothing is in
  // progress: the request before may be counted for a moment after its answer.
  bool Begun() const { return InProgress(1); }
  bool InProgress(int requests) const {
    const std::string line = StrCat("\nmoeplan_requests_in_progress ", requests, "\n");
    const auto limit = steady_clock::now() + seconds(30);
    while (steady_clock::now() < limit) {
      if (Metrics().find(line) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  static inline const std::string kContract = StrCat(MOEPLAN_TEST_DATA, "/contract/");
  const TemporaryFolder folder_;
  std::unique_ptr<Process> server_;
  std::string address_;

 private:
  std::string Metrics() const {
    const auto page = httplib::Client("http://" + AwaitHttpAddress(*server_)).Get("/metrics");
    return page ? page->body : "";
  }
};

TEST_F(EndingTest, WhatDoesNotStopIsNamedAndLeftBehind) {
  std::future<Status> asked = Ask(60);
  ASSERT_TRUE(Begun());
  const auto told = steady_clock::now();
  kill(server_->pid(), SIGTERM);
  // The caller hears of it when the grace is over.
  EXPECT_FALSE(asked.get().ok());
  EXPECT_LT(steady_clock::now() - told, seconds(12));
  const Outcome ended = server_->Finish();
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_LT(steady_clock::now() - told, seconds(15));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("does not stop although it was cancelled"), HasSubstr("PlannerService/Plan"),
                               HasSubstr("requestId=")));
  // What was stored is there.
  const Outcome listed = RunMoeplan({"profile", "list", "--db", folder_ / "m.db", "--json"});
  EXPECT_THAT(listed.out, HasSubstr("two-nodes-of-eight"));
}

// A pipe that is full and that nobody reads.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    ends_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const std::string block(4096, '.');
    while (write(ends_, block.data(), block.size()) > 0) continue;
    while (write(ends_, block.data(), 1) > 0) continue;
  }
  ~FullPipe() { close(ends_); }
  FullPipe(const FullPipe&) = delete;

 private:
  int ends_ = -1;
};

TEST_F(EndingTest, ALogThatNobodyReadsDoesNotHoldItUp) {
  const FullPipe log(folder_ / "log");
  const std::string serve = StrCat("exec \"$@\" 2> ", folder_ / "log");
  server_ = std::make_unique<Process>(Process::StartProgram(
      "/bin/sh", {"-c", serve, "sh", MOEPLAN_PROGRAM, "serve", "--db", folder_ / "n.db", "--grpc", "127.0.0.1:0",
                  "--http", "127.0.0.1:0", "--log-level", "error", "--extension", MOEPLAN_STUCK_EXTENSION}));
  address_ = AwaitAddress(*server_);
  ASSERT_FALSE(address_.empty());
  v1::PutProfileRequest put;
  put.set_request_id("a");
  *put.mutable_profile() = *ReadJsonFile<v1::Profile>(kContract + "profile.example.json");
  ASSERT_TRUE(Client(60)->PutProfile(put).ok());
  ASSERT_TRUE(InProgress(0));
  std::future<Status> asked = Ask(60);
  ASSERT_TRUE(Begun());
  const auto told = steady_clock::now();
  kill(server_->pid(), SIGTERM);
  EXPECT_EQ(server_->Finish().exit_code, 3);
  EXPECT_LT(steady_clock::now() - told, seconds(18));
  EXPECT_FALSE(asked.get().ok());
}

TEST_F(EndingTest, ASecondSignalEndsItAtOnce) {
  std::future<Status> asked = Ask(60);
  ASSERT_TRUE(Begun());
  kill(server_->pid(), SIGTERM);
  const auto refuses = [&] { return !client::PlannerClient::Connect({.address = address_, .deadline_s = 1}).ok(); };
  const auto limit = steady_clock::now() + seconds(8);
  while (!refuses() && steady_clock::now() < limit) continue;  // So it has heard the first.
  const auto told = steady_clock::now();
  kill(server_->pid(), SIGTERM);
  EXPECT_EQ(server_->Finish().exit_code, -1) << "by the signal";
  EXPECT_LT(steady_clock::now() - told, seconds(1));
  EXPECT_FALSE(asked.get().ok());
}

}  // namespace
}  // namespace moeplan::testing
