// `moeplan launch`: any command as the ranks of a job, and what is left when it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Outcome Launch(std::vector<std::string> cluster, const std::string& script,
               const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> arguments = {"launch"};
  arguments.insert(arguments.end(), cluster.begin(), cluster.end());
  for (const char* word : {"--", "sh", "-c"}) arguments.emplace_back(word);
  arguments.push_back(script);
  return RunMoeplan(arguments, environment);
}

// Processes that ranks say they started, one "[RANK] pid PID" a line.
std::vector<pid_t> PidsIn(const std::string& text) {
  std::vector<pid_t> pids;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find("pid "); at != std::string::npos) pids.push_back(std::stoi(line.substr(at + 4)));
  }
  return pids;
}

void ExpectGoneSoon(const std::vector<pid_t>& pids) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const pid_t pid : pids) {
    while (Alive(pid) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_FALSE(Alive(pid)) << pid;
  }
}

TEST(LaunchCommandTest, RanksHaveTorchrunsVariablesAndTheirLinesTheirRank) {
  const Outcome outcome = Launch({"--local", "2", "--port", "12345"},
                                 "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $OURS "
                                 "$OMP_NUM_THREADS; echo oops >&2; cat; printf 'no end'",
                                 {{"OURS", "kept"}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* line : {"[0] 0/2 0/2 127.0.0.1:12345 kept 1\n", "[1] 1/2 1/2 127.0.0.1:12345 kept 1\n",
                           "[0] no end\n", "[1] no end\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("[0] oops\n"), HasSubstr("[1] oops\n")));
}

TEST(LaunchCommandTest, RanksOfThisMachineKeepTheirMemoryUnlessTheyAreToldOtherwise) {
  const auto printed = [](const std::map<std::string, std::string>& environment) {
    return Launch({"--local", "1"}, "echo $MALLOC_TRIM_THRESHOLD_ $MALLOC_MMAP_MAX_", environment).out;
  };
  EXPECT_EQ(printed({}), "[0] 4294967296 0\n");
  EXPECT_EQ(printed({{"MALLOC_MMAP_MAX_", "7"}}), "[0] 4294967296 7\n");
}

// One of the ranks says `last_words` once all others have started something, said what, and wait for it.
std::string ScriptWhereOneFails(const TemporaryFolder& folder, int ranks, int failing, const std::string& last_words) {
  std::string script = "if [ $RANK = " + std::to_string(failing) + " ]; then ";
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == failing) continue;
    script += "until [ -e " + (folder / ("started" + std::to_string(rank))) + " ]; do sleep 0.02; done; ";
  }
  return script + last_words + "; fi; sleep 300 & echo pid $!; echo pid $$; touch " + (folder / "started") +
         "$RANK; wait";
}

TEST(LaunchCommandTest, TheFirstThatFailsEndsAllWithItsCode) {
  for (const auto& [last_words, code] : {std::pair{"exit 7", 7}, std::pair{"kill -9 $$", 137}}) {
    const TemporaryFolder folder;
    const Outcome outcome = Launch({"--local", "3"}, ScriptWhereOneFails(folder, 3, 1, last_words));
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_EQ(PidsIn(outcome.out).size(), 4U) << outcome.out;
    ExpectGoneSoon(PidsIn(outcome.out));
  }
}

TEST(LaunchCommandTest, AnInterruptReachesTheRanksAndLeavesNothing) {
  Process launch = Process::Start({"launch", "--local", "2", "--", "sh", "-c",
                                   "trap 'echo asked to stop; exit 5' INT; sleep 300 & echo pid $!; wait"});
  while (PidsIn(launch.PrintedSoFar()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(launch.pid(), SIGINT);
  const Outcome outcome = launch.Finish();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] asked to stop"), HasSubstr("[1] asked to stop")));
  ExpectGoneSoon(PidsIn(outcome.out));
}

TEST(LaunchCommandTest, WhoInsistsIsNotMadeToWait) {
  Process launch = Process::Start({"launch", "--local", "2", "--", "sh", "-c",
                                   "trap '' INT TERM; sleep 300 & echo pid $!; echo pid $$; wait; wait"});
  while (PidsIn(launch.PrintedSoFar()).size() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto began = std::chrono::steady_clock::now();
  kill(launch.pid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // Two at once would be one signal.
  kill(launch.pid(), SIGINT);
  const Outcome outcome = launch.Finish();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
  EXPECT_EQ(outcome.exit_code, 130);
  ExpectGoneSoon(PidsIn(outcome.out));
}

TEST(LaunchCommandTest, ARankThatPrintsWithoutEndIsStoppedToo) {
  const TemporaryFolder folder;
  Process launch = Process::Start({"launch", "--local", "2", "--", "sh", "-c", "echo pid $$; exec yes"});
  while (PidsIn(launch.PrintedSoFar()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(launch.pid(), SIGHUP);
  EXPECT_EQ(launch.Finish().exit_code, 128 + SIGHUP);
  // What an ended rank has left behind does not keep the job.
  EXPECT_EQ(Launch({"--local", "1"}, "yes & exit 0").exit_code, 0);
}

TEST(LaunchCommandTest, RanksThatDoNotListenAreKilled) {
  Process launch = Process::Start(
      {"launch", "--local", "2", "--", "sh", "-c", "trap '' INT TERM; echo pid $$; while :; do sleep 0.1; done"});
  while (PidsIn(launch.PrintedSoFar()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(launch.pid(), SIGTERM);
  const Outcome outcome = launch.Finish();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  ExpectGoneSoon(PidsIn(outcome.out));
}

TEST(LaunchCommandTest, EmulatedRanksAreToldTheirNic) {
  const TemporaryFolder folder;
  const std::string cluster =
      folder.Write("emulated.json", R"({"nodes": 2, "gpusPerNode": 2, "nic": {"bytesPerS": 2.5e7}})");
  const Outcome outcome = Launch({"--emulated", cluster},
                                 "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $GLOO_SOCKET_IFNAME; "
                                 "ip -4 -o addr show $GLOO_SOCKET_IFNAME");
  if (outcome.exit_code == 3 && outcome.err.find("needs root") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[3] 3 1/2 10.77.0.1 nic\n"), HasSubstr("inet 10.77.0.4/16")));
  const Outcome wrong = Launch({"--emulated", folder.Write("none.json", R"({"nodes": 0, "gpusPerNode": 2})")}, "true");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("none.json"), HasSubstr("nodes")));
}

TEST(LaunchCommandTest, HostsGetOurVariablesOverSshAndStopWithUs) {
  const TemporaryFolder folder;
  // An ssh that stays here and writes down its arguments: the last is the remote command.
  const std::string ssh = folder.Write("ssh",
                                       "#!/bin/sh\necho \"$@\" >> \"$(dirname \"$0\")/log\"\n"
                                       "for last; do :; done\nunset SSH_AUTH_SOCK\nexec sh -c \"$last\"\n");
  chmod(ssh.c_str(), 0755);
  const std::map<std::string, std::string> environment = {
      {"PATH", std::filesystem::path(ssh).parent_path().string() + ":" + std::getenv("PATH")},
      {"OURS", "it's \"kept\"\nin two lines"},
      {"SSH_AUTH_SOCK", "here"},
      {"no.name;exit 3", "x"}};
  const std::string hosts = folder.Write("hosts", "user@first slots=2\nsecond slots=2\n");
  const Outcome outcome = Launch({"--hostfile", hosts},
                                 "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT \"$OURS\" "
                                 "${SSH_AUTH_SOCK:-none}; cat",
                                 environment);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[3] 3 1/2 first:29500 it's \"kept\"\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[3] in two lines none\n"));
  std::stringstream log;
  log << std::ifstream(folder / "log").rdbuf();
  EXPECT_THAT(log.str(), AllOf(HasSubstr("user@first exec sh -s\n"), Not(HasSubstr("OURS"))));

  const Outcome failed = Launch({"--hostfile", hosts}, ScriptWhereOneFails(folder, 4, 2, "exit 9"), environment);
  EXPECT_EQ(failed.exit_code, 9) << failed.err;
  EXPECT_EQ(PidsIn(failed.out).size(), 6U) << failed.out;
  ExpectGoneSoon(PidsIn(failed.out));

  Process stopped = Process::Start({"launch", "--hostfile", hosts, "--", "sh", "-c",
                                    "trap 'echo asked to stop; exit 5' TERM; sleep 300 & echo pid $!; wait"},
                                   environment);
  while (PidsIn(stopped.PrintedSoFar()).size() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(stopped.pid(), SIGINT);
  const Outcome asked = stopped.Finish();
  EXPECT_EQ(asked.exit_code, 130);
  EXPECT_THAT(asked.out, HasSubstr("[3] asked to stop"));
  ExpectGoneSoon(PidsIn(asked.out));
}

TEST(LaunchCommandTest, WrongInputIsNamed) {
  EXPECT_EQ(RunMoeplan({"launch", "--", "true"}).exit_code, 2);
  const Outcome simulated = RunMoeplan({"launch", "--simulated", "cluster.json", "--", "true"});
  EXPECT_EQ(simulated.exit_code, 2);
  EXPECT_THAT(simulated.err, HasSubstr("--simulated: found beside launch"));
  EXPECT_EQ(RunMoeplan({"launch", "--launched", "--", "true"}).exit_code, 2);
  EXPECT_THAT(RunMoeplan({"launch", "--local", "2"}).err, HasSubstr("COMMAND: found nothing"));
  const Outcome none = RunMoeplan({"launch", "--local", "2", "--", "no-such-program"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("COMMAND: found no-such-program"));
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_EQ(RunMoeplan({"launch", "--local", "0", "--", "true"}).exit_code, 2);
}

}  // namespace
}  // namespace moeplan::testing
