// `moeplan serve` and `moeplan agent`, killed and started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "db/store.h"
#include "planner/client/planner_client.h"
#include "tests/e2e/moeplan_process.h"
#include "tests/planner/light_agent.h"
#include "tests/test_seed.h"

namespace moeplan::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Four ranks, two on a node; a few keys, so that passes go over them again and again.
constexpr char kGrid[] = R"({"workloads": [{"name": "small",
  "layer": {"batch": 1, "sequenceLength": 64, "modelDim": 32, "hiddenDim": 64, "experts": 4, "topK": 1,
            "capacityFactor": 1.0},
  "layout": {"expertParallel": 4}, "minChunkBytes": 4096, "maxChunks": 2, "maxPartitionDegree": 2}]})";

template <typename Condition>
bool Await(Condition condition, seconds limit) {
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class FleetTest : public ::testing::Test {
 protected:
  // Where the one before listened, so that agents find it.
  Process Serve() {
    Process server = Process::Start(
        {"serve", "--db", db_, "--grpc", address_, "--http", "127.0.0.1:0", "--agent-heartbeat", "500ms"});
    address_ = AwaitAddress(server);
    EXPECT_NE(address_, "") << server.ErrorsSoFar();
    return server;
  }
  Process Agent(int node, const std::string& name = "") const {
    return Process::Start({"agent", "--planner", address_, "--nodes", "2", "--node-rank", std::to_string(node),
                           "--ranks", "2", "--deadline", "5s", "--name", name.empty() ? StrCat("host-", node) : name});
  }
  Process Calibrate(const std::string& budget) const {
    return Process::Start({"calibrate", "--planner", address_, "--layouts", grid_, "--budget", budget});
  }
  Process CalibrateFleet(const std::string& fleet) const {
    return Process::Start({"calibrate", "--planner", address_, "--cluster", fleet, "--budget", "3s"});
  }

  std::vector<Sample> Stored() const {
    std::vector<Sample> stored;
    const auto store = Store::OpenReadOnly(db_);
    if (!store.ok()) return stored;
    const auto calibrations = store->SamplesOf({});
    if (!calibrations.ok()) return stored;
    for (const Calibration& calibration : *calibrations) {
      stored.insert(stored.end(), calibration.samples.samples.begin(), calibration.samples.samples.end());
    }
    return stored;
  }
  bool AwaitSamples(size_t count) const {
    return Await([&] { return Stored().size() >= count; }, seconds(60));
  }
  CalibrationEvent NewestEvent(std::int64_t calibration = 1) const {
    const auto store = Store::OpenReadOnly(db_);
    if (!store.ok()) return {};
    const auto job = store->LoadCalibrationJob(calibration);
    return job.ok() ? job->newest : CalibrationEvent();
  }
  v1::CalibrationStatus Now() const {
    const auto client = client::PlannerClient::Connect({.address = address_});
    v1::GetCalibrationRequest request;
    request.set_calibration(1);
    const auto answer = client.ok() ? (*client)->GetCalibration(request) : client.status();
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? answer->status() : v1::CalibrationStatus();
  }
  static void ExpectBegins(const std::vector<Sample>& all, const std::vector<Sample>& first) {
    ASSERT_GE(all.size(), first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin())) << "what was kept has changed";
  }

  const TemporaryFolder folder_;
  const std::string db_ = folder_ / "m.db";
  const std::string grid_ = folder_.Write("grid.json", kGrid);
  std::string address_ = "127.0.0.1:0";
};

TEST_F(FleetTest, TwoAgentsCalibrateAndOneThatIsKilledIsWaitedFor) {
  const Process server = Serve();
  Process first = Agent(0);
  auto second = std::make_unique<Process>(Agent(1));
  Process calibrate = Calibrate("6s");
  ASSERT_TRUE(AwaitSamples(10)) << calibrate.ErrorsSoFar();
  const std::vector<pid_t> ranks = second->AwaitChildren(2);
  ASSERT_THAT(ranks, SizeIs(2));
  second.reset();  // By SIGKILL.
  for (const pid_t rank : ranks) EXPECT_TRUE(Await([&] { return !Alive(rank); }, seconds(5))) << "an orphan";
  ASSERT_TRUE(Await([&] { return Now().detail() == "cluster default: node 1 has no agent"; }, seconds(30)))
      << Now().detail();
  const std::vector<Sample> before = Stored();
  second = std::make_unique<Process>(Agent(1));
  const Outcome calibrated = calibrate.Finish();
  EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err;
  EXPECT_THAT(calibrated.out, HasSubstr("profile default, version 1"));
  const std::vector<Sample> after = Stored();
  ExpectBegins(after, before);
  EXPECT_GT(after.size(), before.size());
  EXPECT_EQ(NewestEvent().state, "DONE");
  EXPECT_EQ(NewestEvent().samples, static_cast<int>(after.size()));
  EXPECT_THAT(after.back().provenance,
              ::testing::IsSupersetOf({::testing::Pair("launch", "agents"), ::testing::Pair("fleet", "default"),
                                       ::testing::Pair("backend", "host")}));
  EXPECT_THAT(server.ErrorsSoFar(), HasSubstr("agent host-1 (cluster default, node 1) is lost"));
}

// Its connection is open, its ranks live, and it says nothing.
TEST_F(FleetTest, AnAgentThatHangsIsGivenUpAndTakenBackWhenItGoesOn) {
  const Process server = Serve();
  const Process first = Agent(0), second = Agent(1);
  Process calibrate = Calibrate("6s");
  ASSERT_TRUE(AwaitSamples(5)) << calibrate.ErrorsSoFar();
  kill(second.pid(), SIGSTOP);
  ASSERT_TRUE(
      Await([&] { return server.ErrorsSoFar().find("nothing was heard of the agent for 1.5 s") != std::string::npos; },
            seconds(20)))
      << server.ErrorsSoFar();
  const std::vector<Sample> before = Stored();
  kill(second.pid(), SIGCONT);
  const Outcome calibrated = calibrate.Finish();
  EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err;
  ExpectBegins(Stored(), before);
}

TEST_F(FleetTest, APlannerThatIsKilledGoesOnAndAgentsAndCallersFindItAgain) {
  auto server = std::make_unique<Process>(Serve());
  Process first = Agent(0), second = Agent(1);
  Process calibrate = Calibrate("6s");
  ASSERT_TRUE(AwaitSamples(10)) << calibrate.ErrorsSoFar();
  server.reset();  // By SIGKILL.
  const std::vector<Sample> before = Stored();
  EXPECT_TRUE(Await([&] { return first.Children().empty() && second.Children().empty(); }, seconds(10)))
      << "ranks without a planner";
  server = std::make_unique<Process>(Serve());
  const Outcome calibrated = calibrate.Finish();
  EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err;
  const std::vector<Sample> after = Stored();
  ExpectBegins(after, before);
  EXPECT_GT(after.size(), before.size());
  EXPECT_EQ(NewestEvent().state, "DONE");
  EXPECT_THAT(server->ErrorsSoFar(), HasSubstr("calibration 1 of cluster default goes on"));
  for (Process* agent : {&first, &second}) {
    kill(agent->pid(), SIGTERM);
    EXPECT_EQ(agent->Finish().exit_code, 0);
  }
}

// The agents are here, so that what they answered is known: kept is what all have answered, each once and in order, but
// for what was on its way when the planner was killed.
TEST_F(FleetTest, APlannerThatIsKilledAgainAndAgainLosesAndDoublesNoSample) {
  constexpr int kAgents = 6, kSizes = 24, kKills = 5;
  std::mt19937_64 random(TestSeed());
  auto server = std::make_unique<Process>(Serve());
  std::vector<std::unique_ptr<LightAgent>> agents;
  for (int node = 0; node < kAgents; ++node) {
    // No two times are the same, and those of a visit so far apart that no size is ever tight but by the number of its
    // repeats.
    agents.push_back(std::make_unique<LightAgent>(
        address_, node, kAgents, [node, count = std::make_shared<int>(0)](double, int repeats) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));  // What it takes.
          std::vector<double> times_s;
          for (int i = 0; i < repeats; ++i) times_s.push_back((1 << i) * 1e-3 + 1e-9 * ++*count + 1e-12 * node);
          return times_s;
        }));
    ASSERT_TRUE(agents.back()->Connect().ok());
  }
  v1::StartCalibrationRequest request;
  request.set_request_id("killed");
  request.set_cluster("many");
  request.set_budget_s(300);
  for (int i = 0; i < kSizes; ++i) {
    v1::Sample& operation = *request.add_operations();
    operation.set_collective(v1::Collective::ALL_TO_ALL);
    operation.set_group_size(kAgents);
    operation.set_ranks_per_node(1);
    operation.set_bytes(1024.0 * (1 + i));
    operation.add_time_s(1);
  }
  {
    const auto client = client::PlannerClient::Connect({.address = address_});
    ASSERT_TRUE(client.ok()) << client.status().message();
    ASSERT_TRUE((*client)->StartCalibration(request).ok());
  }
  for (int i = 0; i < kKills; ++i) {
    const size_t wanted = Stored().size() + 1 + random() % 12;
    ASSERT_TRUE(AwaitSamples(wanted));
    server.reset();  // By SIGKILL.
    for (const auto& agent : agents) {
      ASSERT_TRUE(Await([&] { return agent->ended().has_value(); }, seconds(10)));
      agent->Disconnect();
    }
    server = std::make_unique<Process>(Serve());
    for (const auto& agent : agents) ASSERT_TRUE(agent->Connect().ok());
  }
  ASSERT_TRUE(Await([&] { return NewestEvent().ended; }, seconds(60))) << NewestEvent().detail;
  EXPECT_EQ(NewestEvent().state, "DONE") << NewestEvent().detail;

  const std::vector<Sample> stored = Stored();
  EXPECT_EQ(NewestEvent().samples, static_cast<int>(stored.size()));
  // The last agent is the slowest by a little, as long as all have answered as often.
  const std::vector<LightMeasure> answered = agents.back()->measured();
  EXPECT_LE(stored.size(), answered.size());
  EXPECT_LE(answered.size(), stored.size() + kKills) << "a sample was lost that was not on its way";
  std::map<double, int> repeats;
  for (const Sample& sample : stored) repeats[sample.size] += static_cast<int>(sample.times_s.size());
  EXPECT_THAT(repeats, SizeIs(kSizes));
  // Two and then threes until fifteen, wherever the planner was killed between them: 2 + 5 * 3.
  for (const auto& [size, count] : repeats) EXPECT_EQ(count, 17) << size;
  auto next = answered.begin();
  for (const Sample& sample : stored) {
    next = std::find_if(next, answered.end(), [&](const LightMeasure& one) {
      return one.bytes == sample.size && one.times_s.size() == sample.times_s.size();
    });
    ASSERT_NE(next, answered.end()) << "a sample that nobody answered, or one twice";
    ++next;
  }
  std::set<std::vector<double>> different;
  for (const Sample& sample : stored) different.insert(sample.times_s);
  EXPECT_EQ(different.size(), stored.size());
}

TEST_F(FleetTest, AKilledAgentLeavesNoRankAndAStoppedOneEndsWell) {
  const Process server = Serve();
  Process first = Agent(0), second = Agent(1);
  Process calibrate = Calibrate("60s");
  ASSERT_TRUE(AwaitSamples(3));
  const std::vector<pid_t> ranks = first.AwaitChildren(2), others = second.AwaitChildren(2);
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.Finish(seconds(10)).exit_code, 0);
  for (const pid_t rank : ranks) EXPECT_FALSE(Alive(rank));
  // Without its peers a session has no use.
  for (const pid_t rank : others) EXPECT_TRUE(Await([&] { return !Alive(rank); }, seconds(20)));
}

TEST_F(FleetTest, AnAgentWhoseTokenIsRevokedEndsAndSaysWhy) {
  const auto token = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "token");
    arguments.insert(arguments.end(), {"--db", db_});
    const Outcome outcome = RunMoeplan(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out.substr(0, outcome.out.find('\n'));
  };
  const std::string secret = token({"create", "--name", "agents", "--role", "report"});
  const Process server = Serve();
  Process agent = Process::Start({"agent", "--planner", address_}, {{"MOEPLAN_TOKEN", secret}});
  ASSERT_TRUE(Await([&] { return agent.ErrorsSoFar().find("connected") != std::string::npos; }, seconds(20)))
      << agent.ErrorsSoFar();
  token({"revoke", "--name", "agents"});
  const Outcome ended = agent.Finish(seconds(30));
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("has been revoked"));
}

TEST_F(FleetTest, ASecondAgentOfANodeStandsByAndTakesOver) {
  const Process server = Serve();
  auto first = std::make_unique<Process>(Agent(0, "one"));
  ASSERT_TRUE(Await([&] { return first->ErrorsSoFar().find("connected") != std::string::npos; }, seconds(10)));
  const Process second = Agent(0, "two");
  const std::string beside = "cluster default: found agent two (node 0) beside agent one (node 0)";
  ASSERT_TRUE(Await([&] { return second.ErrorsSoFar().find(beside) != std::string::npos; }, seconds(10)));
  first.reset();
  EXPECT_TRUE(
      Await([&] { return second.ErrorsSoFar().find("connected to the planner") != std::string::npos; }, seconds(30)));
  const std::string said = second.ErrorsSoFar();
  EXPECT_EQ(said.find(beside, said.find(beside) + 1), std::string::npos) << "said more than once:\n" << said;
}

TEST_F(FleetTest, AnAgentOfASimulatedClusterHoldsAllItsNodesForOneCalibrationAfterTheOther) {
  const Process server = Serve();
  const std::string cluster = folder_.Write("cluster.json", R"({"name": "four-by-eight", "nodes": 4, "gpusPerNode": 8,
    "gpu": {"peakFlopsPerS": 1e13, "gemmEfficiency": 0.7, "memoryBytesPerS": 6e11, "deviceMemoryBytes": 1e10},
    "gpuLink": {"kind": "SWITCHED", "bytesPerS": 1.2e10}, "nic": {"perNode": 1, "bytesPerS": 1.25e10}})");
  const Process agent = Process::Start({"agent", "--planner", address_, "--cluster", "sim", "--simulated", cluster});
  // One is cancelled while its ranks are at work: what they still answer is not for the next.
  {
    const auto client = client::PlannerClient::Connect({.address = address_});
    ASSERT_TRUE(client.ok()) << client.status().message();
    v1::StartCalibrationRequest request;
    request.set_request_id("cancelled");
    request.set_cluster("sim");
    ASSERT_TRUE((*client)->StartCalibration(request).ok());
    ASSERT_TRUE(AwaitSamples(1)) << agent.ErrorsSoFar();
    v1::CancelCalibrationRequest cancel;
    cancel.set_calibration(1);
    ASSERT_TRUE((*client)->CancelCalibration(cancel).ok());
    EXPECT_TRUE(Await([&] { return NewestEvent().ended; }, seconds(20)));
    EXPECT_EQ(NewestEvent().state, "CANCELLED");
  }
  for (const char* version : {"version 1", "version 2"}) {
    Process calibrate = CalibrateFleet("sim");
    const Outcome calibrated = calibrate.Finish();
    ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err << agent.ErrorsSoFar();
    EXPECT_THAT(calibrated.out, HasSubstr(StrCat("profile sim, ", version)));
  }
  const std::vector<Sample> stored = Stored();
  ASSERT_THAT(stored, Not(IsEmpty()));
  EXPECT_EQ(stored.front().provenance.at("simulatedCluster"), "four-by-eight");
  // And what steps of a model need, when one is named.
  const auto of_steps = [](const Sample& sample) {
    const auto* kernel = std::get_if<KernelKey>(&sample.key);
    return kernel != nullptr && IsLinear(kernel->kernel);
  };
  EXPECT_FALSE(std::ranges::any_of(stored, of_steps));
  const Outcome models = RunMoeplan({"calibrate", "--planner", address_, "--cluster", "sim", "--budget", "20s", "--for",
                                     "mixtral-8x7b,qwen3-30b-a3b"});
  ASSERT_EQ(models.exit_code, 0) << models.err;
  EXPECT_TRUE(std::ranges::any_of(Stored(), of_steps));
}

TEST_F(FleetTest, WhatDoesNotFitIsSaid) {
  const Process server = Serve();
  const Outcome beside = RunMoeplan({"agent", "--planner", address_, "--simulated", "x.json", "--nodes", "2"});
  EXPECT_EQ(beside.exit_code, 2);
  EXPECT_THAT(beside.err, HasSubstr("--nodes excludes --simulated"));
  const Outcome outside = RunMoeplan({"agent", "--planner", address_, "--node-rank", "3"});
  EXPECT_EQ(outside.exit_code, 2);
  EXPECT_THAT(outside.err, HasSubstr("node: found 3, expected 0 to 0"));
  const Outcome both = RunMoeplan({"calibrate", "--planner", address_, "--local", "2"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--planner: found beside"));
  // A name is of one cluster, and a database that is not there is not made to take a token from it.
  Profile other = {.name = "west", .cluster = {.nodes = 8, .gpus_per_node = 4}};
  other.kernels.push_back({{.kernel = Kernel::kGate}, MakeCostModel(AlphaBeta{1e-6, 1e-12})});
  ASSERT_TRUE(Store::Open(db_)->SaveProfile(other).ok());
  const Outcome onto = RunMoeplan({"calibrate", "--local", "2", "--db", db_, "--profile-name", "west"});
  EXPECT_EQ(onto.exit_code, 2);
  EXPECT_THAT(onto.err, HasSubstr("--profile-name: found west, which is of 8 nodes of 4 GPUs, for 1 of 2"));
  const std::string absent = folder_ / "absent.db";
  EXPECT_EQ(RunMoeplan({"token", "revoke", "--db", absent, "--name", "a"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(absent));
  const Outcome nowhere = RunMoeplan({"calibrate", "--local", "2"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--db is required"));
}

}  // namespace
}  // namespace moeplan::testing
