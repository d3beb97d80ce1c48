// `moeplan serve` and those who ask it.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kContract = std::string(MOEPLAN_TEST_DATA) + "/contract/";

Process StartServer(const TemporaryFolder& folder) {
  return Process::Start({"serve", "--db", folder / "m.db", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"});
}

TEST(ServeTest, AnswersLikeTheDatabaseItServesAndEndsOnSigterm) {
  const TemporaryFolder folder;
  ASSERT_EQ(RunMoeplan({"calibrate", "--local", "2", "--db", folder / "m.db", "--budget", "3s"}).exit_code, 0);
  const std::string workload =
      folder.Write("workload.json", R"({"layer": {"batch": 1, "sequenceLength": 256, "modelDim": 64,
      "hiddenDim": 128, "experts": 4, "topK": 2, "capacityFactor": 1.0}, "layout": {"expertParallel": 2}})");
  Process server = StartServer(folder);
  const std::string address = AwaitAddress(server);
  ASSERT_FALSE(address.empty());
  const Outcome asked = RunMoeplan({"plan", "--planner", address, "--workload", workload, "--json"});
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.out, RunMoeplan({"plan", "--db", folder / "m.db", "--workload", workload, "--json"}).out);
  const auto what_if = [&](const std::string& source, const std::string& where) {
    return RunMoeplan({"what-if", source, where, "--workload", workload, "--sweep", "layer.batch=1,2", "--sweep",
                       "kernels[EXPERT_GEMM].timeScale=1,0.5", "--jsonl"});
  };
  const Outcome swept = what_if("--planner", address);
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_EQ(swept.out, what_if("--db", folder / "m.db").out);
  const Outcome unknown =
      RunMoeplan({"plan", "--planner", address, "--profile-name", "nobody", "--workload", workload, "--json"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("nobody"));
  const Outcome wrong =
      RunMoeplan({"plan", "--planner", address, "--workload", kContract + "workload.example.json", "--json"});
  EXPECT_EQ(wrong.exit_code, 2) << "a layout of 16 ranks on a profile of 2";
  kill(server.pid(), SIGTERM);
  EXPECT_EQ(server.Finish().exit_code, 0);
}

// Whether the process has SIGTERM blocked, so that it ends only by its own doing.
bool BlocksSigterm(const Process& process) {
  std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }
  return false;
}

TEST(ServeTest, ASignalEndsItAlsoWhileItStarts) {
  const TemporaryFolder folder;
  {
    Process server = StartServer(folder);
    ASSERT_FALSE(AwaitAddress(server).empty());
    kill(server.pid(), SIGTERM);
    ASSERT_EQ(server.Finish().exit_code, 0);
  }
  SQLite::Database database(folder / "m.db", SQLite::OPEN_READWRITE);
  database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;");
  Process server = StartServer(folder);  // Waits five seconds for the database.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!BlocksSigterm(server) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  ASSERT_TRUE(BlocksSigterm(server));
  kill(server.pid(), SIGTERM);
  EXPECT_EQ(server.Finish().exit_code, -1) << "by the signal";
}

TEST(ServeTest, APortInUseIsNamed) {
  const TemporaryFolder folder;
  const Process server = StartServer(folder);
  const std::string address = AwaitAddress(server);
  ASSERT_FALSE(address.empty());
  const Outcome second = RunMoeplan({"serve", "--db", folder / "n.db", "--grpc", address, "--http", "127.0.0.1:0"});
  EXPECT_EQ(second.exit_code, 3);
  EXPECT_THAT(second.err, HasSubstr(address));
}

TEST(ServeTest, NoServerIsSaid) {
  const TemporaryFolder folder;
  const Outcome outcome =
      RunMoeplan({"plan", "--planner", "127.0.0.1:1", "--workload", kContract + "workload.example.json", "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("moeplan serve")));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace moeplan::testing
