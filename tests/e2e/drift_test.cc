// A link that slows down under a job: found by what the job reports, measured again, and answered with another plan.
// The cluster is simulated; everything else is real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "models/text.h"
#include "planner/client/plan_watch.h"
#include "planner/client/planner_client.h"
#include "proto/json.h"
#include "tests/e2e/moeplan_process.h"
#include "tests/planner/told.h"
#include "tests/test_seed.h"

namespace moeplan::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Two nodes whose interface and products are so many times slower than they were.
std::string ClusterSlowedBy(double nic, double products = 1) {
  return StrCat(R"({"name": "two-by-four", "nodes": 2, "gpusPerNode": 4,
    "gpu": {"peakFlopsPerS": 1e13, "gemmEfficiency": )",
                0.7 / products, R"(, "memoryBytesPerS": 6e11, "deviceMemoryBytes": 1e10, "launchS": 6e-6},
    "gpuLink": {"kind": "SWITCHED", "bytesPerS": 1.2e10, "latencyS": 5e-6},
    "nic": {"perNode": 1, "bytesPerS": )",
                7e9 / nic, R"(, "latencyS": 4e-6}})");
}

constexpr char kWorkload[] = R"({"name": "job",
  "layer": {"batch": 1, "sequenceLength": 2048, "modelDim": 512, "hiddenDim": 1024, "experts": 8, "topK": 2,
            "capacityFactor": 1.25, "bytesPerElement": 2},
  "layout": {"tensorParallel": 2, "expertParallel": 4, "expertShardingParallel": 2}, "minChunkBytes": 16384,
  "maxChunks": 8})";

class DriftTest : public ::testing::Test {
 protected:
  Process Serve() {
    Process server = Process::Start({"serve", "--db", folder_ / "m.db", "--grpc", address_, "--http", "127.0.0.1:0",
                                     "--agent-heartbeat", "500ms", "--report-interval", "1ms"});
    address_ = AwaitAddress(server);
    EXPECT_NE(address_, "") << server.ErrorsSoFar();
    auto client = client::PlannerClient::Connect({.address = address_, .deadline_s = 60});
    EXPECT_TRUE(client.ok()) << client.status().message();
    if (client.ok()) client_ = *std::move(client);
    return server;
  }
  std::unique_ptr<Process> Agent(const std::string& cluster) const {
    return std::make_unique<Process>(
        Process::Start({"agent", "--planner", address_, "--cluster", "west", "--simulated", cluster}));
  }
  void Calibrate() const {
    const Outcome calibrated =
        RunMoeplan({"calibrate", "--planner", address_, "--cluster", "west", "--layouts", grid_, "--budget", "60s"});
    ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  }
  std::unique_ptr<client::PlanWatch> Watch(Told& told, const v1::PlanResponse* held = nullptr) const {
    client::PlanWatchOptions options = {.planner = {.address = address_}, .first_pause_s = 0.1};
    told.Listen(options);
    *options.request.mutable_request() = request_;
    if (held != nullptr) *options.request.mutable_held() = *held;
    return std::make_unique<client::PlanWatch>(std::move(options));
  }

  // Runs the plan on the cluster, as a job would.
  v1::RunReport RunOn(const std::string& cluster, const v1::PlanResponse& plan) const {
    const std::string file = folder_.Write("plan.json", ToJson(plan));
    const Outcome ran = RunMoeplan({"run", "--simulated", cluster, "--plan", file, "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const auto report = FromJson<v1::RunReport>(ran.out, "report");
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : v1::RunReport();
  }
  // Reports the same run a number of times, as of successive steps. Whether something was found.
  bool Report(const v1::PlanResponse& plan, const v1::RunReport& run, int times) {
    bool drifted = false;
    for (int i = 0; i < times; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // Longer than --report-interval.
      v1::ReportRunRequest request;
      request.set_request_id(StrCat("step ", ++steps_));
      *request.mutable_plan() = plan;
      *request.mutable_ranks() = run.ranks();
      const auto answer = client_->ReportRun(request);
      EXPECT_TRUE(answer.ok()) << answer.status().message();
      if (!answer.ok()) return false;
      for (const v1::CostRatio& cost : answer->costs()) drifted = drifted || cost.drifted();
    }
    return drifted;
  }
  v1::Drift NewestDrift() const {
    const auto drifts = client_->ListDrifts({});
    EXPECT_TRUE(drifts.ok()) << drifts.status().message();
    return drifts.ok() && drifts->drifts_size() > 0 ? drifts->drifts(0) : v1::Drift();
  }

  const TemporaryFolder folder_;
  const std::string fast_ = folder_.Write("fast.json", ClusterSlowedBy(1)),
                    slow_ = folder_.Write("slow.json", ClusterSlowedBy(1.5)),
                    workload_ = folder_.Write("workload.json", kWorkload),
                    grid_ = folder_.Write("grid.json", StrCat(R"({"workloads": [)", kWorkload, "]}"));
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<client::PlannerClient> client_;
  v1::PlanRequest request_ = [] {
    v1::PlanRequest request;
    *request.mutable_workload() = *FromJson<v1::Workload>(kWorkload, "workload");
    request.set_profile_name("west");
    return request;
  }();
  int steps_ = 0;
};

bool SameKnobs(const v1::Plan& one, const v1::Plan& other) {
  return one.schedule() == other.schedule() && one.chunks() == other.chunks() &&
         one.partition_degree() == other.partition_degree() && one.all_to_all() == other.all_to_all();
}

TEST_F(DriftTest, ALinkThatSlowsDownIsFoundMeasuredAgainAndAnsweredWithTheRightPlan) {
  auto server = std::make_unique<Process>(Serve());
  ASSERT_NE(client_, nullptr);
  std::unique_ptr<Process> agent = Agent(fast_);
  Calibrate();

  Told told;
  auto watch = Watch(told);
  const auto first = told.Next(seconds(30));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->plan().profile_version(), 1);
  EXPECT_THAT(first->why(), HasSubstr("the best plan of profile west version 1"));
  const v1::PlanResponse held = first->plan();

  // As predicted: nothing is found, however often.
  EXPECT_FALSE(Report(held, RunOn(fast_, held), 200));
  EXPECT_EQ(NewestDrift().cost(), "");

  // The interface slows down, for the job and for whoever measures.
  agent.reset();
  agent = Agent(slow_);
  const v1::RunReport slowed = RunOn(slow_, held);
  EXPECT_TRUE(Report(held, slowed, 25));
  v1::Drift drift = NewestDrift();
  EXPECT_THAT(drift.cost(), HasSubstr("ranksPerNode"));
  EXPECT_NEAR(drift.ratio(), 1.5, 0.15);
  EXPECT_EQ(drift.profile_version(), 1);

  const auto second = told.Next(seconds(120));
  ASSERT_TRUE(second) << NewestDrift().ShortDebugString() << agent->ErrorsSoFar() << server->ErrorsSoFar();
  EXPECT_EQ(second->plan().profile_version(), 2);
  EXPECT_THAT(second->why(), HasSubstr("since version 1, "));
  EXPECT_THAT(second->why(), HasSubstr("times as long"));
  drift = NewestDrift();
  EXPECT_EQ(drift.state(), v1::Drift::RENEWED) << drift.ShortDebugString();
  EXPECT_EQ(drift.renewed_version(), 2);

  // The right one: faster there than what was held, and as fast as what whoever calibrates the slow cluster from
  // nothing is told.
  const std::string db = folder_ / "slow.db";
  const Outcome anew =
      RunMoeplan({"calibrate", "--simulated", slow_, "--layouts", grid_, "--db", db, "--budget", "60s"});
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", workload_, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto right = FromJson<v1::PlanResponse>(planned.out, "plan");
  ASSERT_TRUE(right.ok()) << right.status().message();
  EXPECT_FALSE(SameKnobs(held.best(), second->plan().best()));
  const double now_s = RunOn(slow_, second->plan()).measured_time_s();
  EXPECT_LT(now_s, 0.95 * slowed.measured_time_s());
  // Several candidates take the same time within a thousandth.
  EXPECT_LT(now_s, 1.005 * RunOn(slow_, *right).measured_time_s());

  // With the new version all is as predicted again, and nobody is told anything.
  EXPECT_FALSE(Report(second->plan(), RunOn(slow_, second->plan()), 100));
  EXPECT_FALSE(Report(held, slowed, 100));
  EXPECT_FALSE(told.Next(seconds(1)));

  // A planner that is started again tells whoever holds the old plan once, and whoever holds the new one nothing.
  client_.reset();
  server.reset();
  server = std::make_unique<Process>(Serve());
  Told old, current;
  const auto of_old = Watch(old, &held), of_current = Watch(current, &second->plan());
  const auto again = old.Next(seconds(30));
  ASSERT_TRUE(again);
  EXPECT_TRUE(SameKnobs(again->plan().best(), second->plan().best()));
  EXPECT_FALSE(current.Next(seconds(1)));
  EXPECT_FALSE(told.Next(seconds(1)));
}

// A new driver slows down more than one thing.
TEST_F(DriftTest, WhatDriftsOnTwoResourcesIsRenewedOnBoth) {
  const Process server = Serve();
  ASSERT_NE(client_, nullptr);
  std::unique_ptr<Process> agent = Agent(fast_);
  Calibrate();
  const auto plan = client_->Plan(request_);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::string slower = folder_.Write("slower.json", ClusterSlowedBy(1.5, 1.7));
  agent.reset();
  agent = Agent(slower);
  const v1::RunReport slowed = RunOn(slower, *plan);
  EXPECT_TRUE(Report(*plan, slowed, 25));
  const auto drifts = [&] {
    const auto answer = client_->ListDrifts({});
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.value_or(v1::ListDriftsResponse());
  };
  const auto measuring = [&] {
    const v1::ListDriftsResponse all = drifts();
    return std::ranges::any_of(all.drifts(),
                               [](const v1::Drift& drift) { return drift.state() == v1::Drift::MEASURING; });
  };
  const auto until = std::chrono::steady_clock::now() + seconds(120);
  while (measuring() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  bool links = false, products = false;
  const v1::ListDriftsResponse all = drifts();
  for (const v1::Drift& drift : all.drifts()) {
    EXPECT_EQ(drift.state(), v1::Drift::RENEWED) << drift.ShortDebugString() << server.ErrorsSoFar();
    links = links || drift.cost().starts_with("ALL_TO_ALL");
    products = products || drift.cost().starts_with("EXPERT_GEMM");
  }
  EXPECT_TRUE(links);
  EXPECT_TRUE(products);
  EXPECT_FALSE(Report(*plan, slowed, 50));
}

// Whenever the planner is killed after a drift was found, the next one brings it to its end.
TEST_F(DriftTest, APlannerThatIsKilledWhileItMeasuresAgainGoesOn) {
  auto server = std::make_unique<Process>(Serve());
  ASSERT_NE(client_, nullptr);
  std::unique_ptr<Process> agent = Agent(fast_);
  Calibrate();
  const auto plan = client_->Plan(request_);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  agent.reset();
  agent = Agent(slow_);
  const v1::RunReport slowed = RunOn(slow_, *plan);
  ASSERT_TRUE(Report(*plan, slowed, 25));
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (int kill = 0; kill < 3; ++kill) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));  // Any moment will do.
    client_.reset();
    server.reset();  // By SIGKILL.
    server = std::make_unique<Process>(Serve());
    ASSERT_NE(client_, nullptr) << "seed " << seed;
  }
  Told told;
  const auto watch = Watch(told, &*plan);
  const auto renewed = told.Next(seconds(120));
  ASSERT_TRUE(renewed) << "seed " << seed << server->ErrorsSoFar() << agent->ErrorsSoFar();
  EXPECT_EQ(renewed->plan().profile_version(), 2) << "seed " << seed;
  EXPECT_FALSE(Report(*plan, slowed, 50));
}

// What runs see and measurements do not is no reason to measure again and again.
TEST_F(DriftTest, WhatMeasuringDoesNotConfirmIsKnownFromThenOn) {
  const Process server = Serve();
  ASSERT_NE(client_, nullptr);
  const std::unique_ptr<Process> agent = Agent(fast_);
  Calibrate();
  const auto plan = client_->Plan(request_);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const v1::RunReport slowed = RunOn(slow_, *plan);  // Where no agent is.
  EXPECT_TRUE(Report(*plan, slowed, 25));
  const auto until = std::chrono::steady_clock::now() + seconds(120);
  while (NewestDrift().state() == v1::Drift::MEASURING && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(NewestDrift().state(), v1::Drift::UNCONFIRMED) << NewestDrift().ShortDebugString();
  EXPECT_FALSE(Report(*plan, slowed, 100)) << server.ErrorsSoFar();
  EXPECT_EQ(NewestDrift().calibration(), 2);
  // Nor is its end.
  EXPECT_FALSE(Report(*plan, RunOn(fast_, *plan), 50));
  EXPECT_THAT(NewestDrift().detail(), HasSubstr("runs find it as predicted again"));
  EXPECT_EQ(NewestDrift().calibration(), 2);
  const auto profiles = client_->ListProfiles({});
  ASSERT_TRUE(profiles.ok());
  EXPECT_EQ(profiles->profiles_size(), 1);
}

}  // namespace
}  // namespace moeplan::testing
