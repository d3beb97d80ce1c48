// A rank process is killed, stopped or slowed at a random moment of a layer that runs again and again: the others leave
// in time and say where, the rank is named, nothing stays behind, and where all processes live they run the layer
// again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "agent/compare/run_plan.h"
#include "agent/fleet.h"
#include "executor/launch/launch.h"
#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan::agent {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr double kDeadlineS = 2;  // Enough for a busy machine to connect and run in.
constexpr double kSlackS = 5;     // Two busy processors and a sanitizer.

// Every kind of group has two ranks, or four.
Workload SmallWorkload() {
  Workload workload{.name = "small"};
  workload.layer = {.batch = 1,
                    .sequence_length = 128,
                    .model_dim = 64,
                    .hidden_dim = 64,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0,
                    .bytes_per_element = 4};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 512;
  return workload;
}

Plan AnyPlan(std::mt19937_64& random) {
  constexpr Family kFamilies[] = {Family::kBaseline, Family::kParmS1, Family::kParmS2, Family::kMontaO2};
  const Family family = kFamilies[random() % std::size(kFamilies)];
  return {.knobs = {.family = family, .chunks = family == Family::kMontaO2 ? 2 : 1}};
}

Fleet StartFleet(double deadline_s) {
  auto launch = executor::LaunchLocal(kRanks, {.program = RANK_PROGRAM});
  EXPECT_TRUE(launch.ok()) << launch.status().message();
  auto fleet = Fleet::Start(*std::move(launch), {.collective_deadline_s = deadline_s, .start_timeout_s = 20});
  EXPECT_TRUE(fleet.ok()) << fleet.status().message();
  return *std::move(fleet);
}

std::vector<int> ProcessesOf(const Fleet& fleet) {
  std::vector<int> processes;
  for (int rank = 0; rank < fleet.ranks(); ++rank) processes.push_back(fleet.ProcessOf(rank));
  return processes;
}

// Does something to a process after a while, on a thread of its own.
class After {
 public:
  After(microseconds time, std::function<void()> action)
      : thread_([time, action = std::move(action)] {
          std::this_thread::sleep_for(time);
          action();
        }) {}
  ~After() { thread_.join(); }

 private:
  std::thread thread_;
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Ended {
  Status status;
  double time_s = 0;  // That the last run took.
};

// Prepares the plan and runs it until it fails, which it does because of `fault`, at a random moment.
Ended RunUntilItFails(Fleet& fleet, std::mt19937_64& random, const std::function<void()>& fault) {
  Bench bench(fleet, SmallWorkload());
  const StatusOr<int> graph = bench.Add(AnyPlan(random));
  if (!graph.ok()) return {graph.status(), 0};
  const After later(microseconds(random() % 20000), fault);
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    const Status ran = bench.TimeOnceS(*graph).status();
    if (!ran.ok()) return {ran, SecondsSince(start)};
  }
}

void ExpectRunsAndIsRight(Fleet& fleet, const Plan& plan) {
  const StatusOr<v1::RunReport> report = RunPlan(fleet, *ResolveWorkload(SmallWorkload(), fleet.cluster()), plan);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_LE(report->max_relative_error(), 1e-5);
}

size_t EntriesOf(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

// What a rank process holds that it would have to give back.
struct Holdings {
  size_t descriptors = 0, threads = 0, resident_pages = 0;
};
Holdings HoldingsOf(int process) {
  const std::string folder = StrCat("/proc/", process);
  Holdings holdings{EntriesOf(folder + "/fd"), EntriesOf(folder + "/task")};
  size_t pages = 0;
  std::ifstream(folder + "/statm") >> pages >> holdings.resident_pages;
  return holdings;
}

const char* const kSaysWhere = "rank [0-9]+ (did not answer in time|is lost .*): task .*, [0-9]+ bytes";

class ProcessFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    descriptors_ = EntriesOf("/proc/self/fd");
  }
  // No process is left, not even as a zombie, and no descriptor: pipe or namespace.
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors_);
  }

 private:
  size_t descriptors_ = 0;
};

TEST_F(ProcessFaultTest, AKilledRankIsNamedAndItsPeersLeaveAndSayWhere) {
  std::mt19937_64 random(TestSeed());
  int noticed = 0;  // By a rank in the middle of a task.
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    constexpr double kLongDeadlineS = 2;  // A connection that closes is noticed at once, one that is to open is not.
    Fleet fleet = StartFleet(kLongDeadlineS);
    const int victim = static_cast<int>(random() % kRanks);
    SCOPED_TRACE(StrCat("draw ", i, " rank ", victim));
    const Ended ended = RunUntilItFails(fleet, random, [&] { kill(fleet.ProcessOf(victim), SIGKILL); });
    const std::string& message = ended.status.message();
    EXPECT_EQ(ended.status.code(), StatusCode::kPeerLost);
    EXPECT_THAT(message, HasSubstr(StrCat("rank ", victim, " is lost: its process was killed by signal 9")));
    if (message.find(" (rank ") != std::string::npos) {
      EXPECT_THAT(message, ContainsRegex(kSaysWhere));
      ++noticed;
    }
    // Waits until the peers have answered.
    const auto start = std::chrono::steady_clock::now();
    const Status again = fleet.Restart();
    EXPECT_LE(ended.time_s + SecondsSince(start), kLongDeadlineS + kSlackS);
    EXPECT_EQ(again.message(), StrCat("rank ", victim, " is lost: its process was killed by signal 9"));
  }
  EXPECT_TRUE(HasFailure() || noticed > 0) << noticed;
}

TEST_F(ProcessFaultTest, AStoppedRankIsNamedAndOnceItGoesOnTheRanksRunAgain) {
  std::mt19937_64 random(TestSeed());
  Fleet fleet = StartFleet(kDeadlineS);
  const std::vector<int> processes = ProcessesOf(fleet);
  std::vector<Holdings> early(kRanks);
  int noticed = 0;  // By a rank in the middle of a task.
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    const int victim = static_cast<int>(random() % kRanks);
    SCOPED_TRACE(StrCat("draw ", i, " rank ", victim));
    const Ended ended = RunUntilItFails(fleet, random, [&] { kill(processes[victim], SIGSTOP); });
    EXPECT_EQ(ended.status.code(), StatusCode::kDeadlineExceeded) << ended.status.message();
    EXPECT_THAT(ended.status.message(),
                AnyOf(ContainsRegex(StrCat("no answer from rank ([0-9], )*", victim)),
                      HasSubstr(StrCat("rank ", victim, " did not answer within ", kDeadlineS, " s"))));
    if (ended.status.message().find(" (rank ") != std::string::npos) {
      EXPECT_THAT(ended.status.message(), ContainsRegex(kSaysWhere));
      ++noticed;
    }
    EXPECT_LE(ended.time_s, kDeadlineS + kSlackS);
    kill(processes[victim], SIGCONT);
    const Status again = fleet.Restart();
    ASSERT_TRUE(again.ok()) << again.message() << " after " << ended.status.message();
    ExpectRunsAndIsRight(fleet, AnyPlan(random));
    // Chunks have a stream of their own, with its thread, from their first run on.
    ExpectRunsAndIsRight(fleet, {.knobs = {.family = Family::kMontaO2, .chunks = 2}});
    for (int rank = 0; i == 3 && rank < kRanks; ++rank) early[rank] = HoldingsOf(processes[rank]);
  }
  EXPECT_TRUE(HasFailure() || noticed > 0) << noticed;
  EXPECT_EQ(ProcessesOf(fleet), processes);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Holdings late = HoldingsOf(processes[rank]);
    EXPECT_EQ(late.descriptors, early[rank].descriptors) << "rank " << rank;
    EXPECT_EQ(late.threads, early[rank].threads) << "rank " << rank;
    EXPECT_LE(late.resident_pages, early[rank].resident_pages + 512) << "rank " << rank;  // 2 MB.
  }
}

TEST_F(ProcessFaultTest, ARankThatIsStoppedForLessThanTheDeadlineIsOnlySlow) {
  std::mt19937_64 random(TestSeed());
  Fleet fleet = StartFleet(/*deadline_s=*/20);
  const std::vector<int> processes = ProcessesOf(fleet);
  for (int i = 0; i < 10 && !HasFailure(); ++i) {
    const int victim = static_cast<int>(random() % kRanks);
    const Plan plan = AnyPlan(random);
    const After stopped(microseconds(random() % 20000), [&] {
      kill(processes[victim], SIGSTOP);
      std::this_thread::sleep_for(milliseconds(50));
      kill(processes[victim], SIGCONT);
    });
    ExpectRunsAndIsRight(fleet, plan);
  }
}

}  // namespace
}  // namespace moeplan::agent
