// Calibrations of many light agents against one real planner, over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <iostream>
#include <thread>

#include "cli/calibration_driver.h"
#include "light_agent.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using Clock = std::chrono::steady_clock;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

double SinceS(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// True once `condition` holds; false when it does not within the limit.
template <typename Condition>
bool Await(Condition condition, double limit_s) {
  for (const auto start = Clock::now(); SinceS(start) < limit_s;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class FleetScaleTest : public ServiceTest {
 protected:
  ServerOptions WithDriver() const {
    ServerOptions options = Options();
    options.agents.driver = cli::MakeCalibrationDriver([] { return std::string("2026-01-01T00:00:00Z"); });
    return options;
  }

  // The agent of the last node is the slowest, so that a time that lacks it would show.
  std::vector<std::unique_ptr<LightAgent>> Agents(const Server& server, int count) {
    std::vector<std::unique_ptr<LightAgent>> agents;
    for (int node = 0; node < count; ++node) {
      agents.push_back(
          std::make_unique<LightAgent>(server.grpc_address(), node, count, [node](double bytes, int repeats) {
            std::vector<double> times_s;
            for (int i = 0; i < repeats; ++i) times_s.push_back((1e-4 + 1e-9 * bytes) * (1 + 1e-6 * node + 1e-3 * i));
            return times_s;
          }));
      const Status connected = agents.back()->Connect();
      EXPECT_TRUE(connected.ok()) << connected.message();
    }
    return agents;
  }

  // Of all-to-alls among all ranks, of `sizes` sizes.
  static v1::StartCalibrationRequest AllToAlls(const std::string& request_id, int ranks, int sizes) {
    v1::StartCalibrationRequest request;
    request.set_request_id(request_id);
    request.set_cluster("many");
    request.set_budget_s(120);
    for (int i = 0; i < sizes; ++i) {
      v1::Sample& operation = *request.add_operations();
      operation.set_collective(v1::Collective::ALL_TO_ALL);
      operation.set_group_size(ranks);
      operation.set_ranks_per_node(1);
      operation.set_bytes(1024.0 * (1 << i));
      operation.add_time_s(1);
    }
    return request;
  }

  static v1::CalibrationStatus StatusOf(const client::PlannerClient& client, int calibration) {
    v1::GetCalibrationRequest request;
    request.set_calibration(calibration);
    const auto answer = client.GetCalibration(request);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? answer->status() : v1::CalibrationStatus();
  }
  static v1::CalibrationStatus AwaitEnd(const client::PlannerClient& client, int calibration, double limit_s) {
    const bool ended = Await(
        [&] {
          const auto state = StatusOf(client, calibration).state();
          return state != v1::CalibrationStatus::WAITING && state != v1::CalibrationStatus::RUNNING;
        },
        limit_s);
    EXPECT_TRUE(ended) << StatusOf(client, calibration).ShortDebugString();
    return StatusOf(client, calibration);
  }

  // What the store keeps, in the order kept.
  std::vector<LightMeasure> Stored() const {
    std::vector<LightMeasure> stored;
    const auto store = Store::OpenReadOnly(db());
    EXPECT_TRUE(store.ok());
    const auto calibrations = store->SamplesOf({});
    if (!calibrations.ok()) return stored;
    for (const Calibration& calibration : *calibrations) {
      for (const Sample& sample : calibration.samples.samples) stored.push_back({sample.size, sample.times_s});
    }
    return stored;
  }
};

TEST_F(FleetScaleTest, FiveHundredAgentsCalibrateAndLoseOneOnTheWay) {
  constexpr int kAgents = 500, kSizes = 16;
  const auto server = Started(WithDriver());
  const auto client = ClientOf(*server);
  auto start = Clock::now();
  auto agents = Agents(*server, kAgents);
  std::cout << kAgents << " agents connected after " << SinceS(start) << " s\n";
  // The slowest of all leaves in the middle of a measurement, and comes back.
  agents.back()->FallSilentAfter(20);
  start = Clock::now();
  const auto started = client->StartCalibration(AllToAlls("scale", kAgents, kSizes));
  ASSERT_TRUE(started.ok()) << started.status().message();
  ASSERT_TRUE(Await([&] { return agents.back()->silent(); }, 100));
  agents.back()->Disconnect();
  agents.back()->FallSilentAfter(std::nullopt);
  ASSERT_TRUE(agents.back()->Connect().ok());
  const v1::CalibrationStatus ended = AwaitEnd(*client, started->calibration(), 120);
  std::cout << "calibrated after " << SinceS(start) << " s, " << ended.samples() << " samples\n";
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::DONE) << ended.detail();
  EXPECT_EQ(ended.profile_version(), 1);

  // What it has answered is what is kept, each once, in order: whatever it did not answer was no sample.
  const std::vector<LightMeasure> answered = agents.back()->measured();
  EXPECT_EQ(Stored(), answered);
  // Times hardly differ, so every size is tight after two repeats and then three.
  EXPECT_THAT(answered, SizeIs(2 * kSizes));
  EXPECT_EQ(ended.samples(), 2 * kSizes);
  v1::GetProfileRequest wanted;
  wanted.set_profile_name("many");
  const auto profile = client->GetProfile(wanted);
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->profile().cluster().nodes(), kAgents);
}

TEST_F(FleetScaleTest, APlannerThatIsStoppedGoesOnWithWhatIsLeft) {
  constexpr int kAgents = 8, kSizes = 12;
  ServerOptions options = WithDriver();
  auto server = Started(options);
  options.grpc_address = server->grpc_address();
  auto agents = Agents(*server, kAgents);
  agents.back()->FallSilentAfter(7);
  int calibration = 0;
  {
    const auto client = ClientOf(*server);
    const auto started = client->StartCalibration(AllToAlls("again", kAgents, kSizes));
    ASSERT_TRUE(started.ok()) << started.status().message();
    calibration = started->calibration();
  }
  ASSERT_TRUE(Await([&] { return agents.back()->silent(); }, 60));
  server->Shutdown();
  server.reset();
  EXPECT_THAT(Stored(), SizeIs(7));
  for (const auto& agent : agents) {
    EXPECT_TRUE(Await([&] { return agent->ended().has_value(); }, 10));
    agent->Disconnect();
  }
  agents.back()->FallSilentAfter(std::nullopt);
  server = Started(options);
  const auto client = ClientOf(*server);
  EXPECT_EQ(StatusOf(*client, calibration).state(), v1::CalibrationStatus::WAITING);
  for (const auto& agent : agents) EXPECT_TRUE(agent->Connect().ok());
  const v1::CalibrationStatus ended = AwaitEnd(*client, calibration, 60);
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::DONE) << ended.detail();
  EXPECT_EQ(Stored(), agents.back()->measured());
  EXPECT_THAT(Stored(), SizeIs(2 * kSizes));
  // A retry of the request is the same calibration, now and for ever.
  const auto again = client->StartCalibration(AllToAlls("again", kAgents, kSizes));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->calibration(), calibration);
  EXPECT_THAT(client->StartCalibration(AllToAlls("again", kAgents, kSizes + 1)),
              IsError(StatusCode::kInvalidInput, "asked for another calibration before"));
}

TEST_F(FleetScaleTest, WhatIsNotThereIsNamedWhenItWasWaitedForLongEnough) {
  const auto server = Started(WithDriver());
  const auto client = ClientOf(*server);
  LightAgent one(server->grpc_address(), /*node=*/1, /*nodes=*/3, nullptr);
  ASSERT_TRUE(one.Connect().ok());
  v1::StartCalibrationRequest request = AllToAlls("late", 3, 1);
  request.set_wait_limit_s(0.3);
  const auto started = client->StartCalibration(request);
  ASSERT_TRUE(started.ok()) << started.status().message();
  const v1::CalibrationStatus ended = AwaitEnd(*client, started->calibration(), 30);
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::FAILED);
  EXPECT_THAT(ended.detail(), HasSubstr("cluster many: nodes 0, 2 have no agent; waited 0.3 s"));
}

TEST_F(FleetScaleTest, ACalibrationThatIsCancelledEndsAndTheNextOneRuns) {
  const auto server = Started(WithDriver());
  const auto client = ClientOf(*server);
  auto agents = Agents(*server, 2);
  agents.back()->FallSilentAfter(1);  // It hangs.
  const auto first = client->StartCalibration(AllToAlls("first", 2, 4));
  const auto second = client->StartCalibration(AllToAlls("second", 2, 4));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(Await([&] { return agents.back()->silent(); }, 30));
  const std::string waits = "waits for another calibration of the cluster";
  EXPECT_TRUE(Await([&] { return StatusOf(*client, second->calibration()).detail() == waits; }, 30));
  agents.back()->FallSilentAfter(std::nullopt);
  v1::CancelCalibrationRequest cancel;
  cancel.set_calibration(first->calibration());
  ASSERT_TRUE(client->CancelCalibration(cancel).ok());
  EXPECT_EQ(AwaitEnd(*client, first->calibration(), 30).state(), v1::CalibrationStatus::CANCELLED);
  EXPECT_EQ(AwaitEnd(*client, second->calibration(), 30).state(), v1::CalibrationStatus::DONE);
  EXPECT_THAT(client->GetCalibration({}), IsError(StatusCode::kNotFound, "holds no calibration 0"));
  v1::ListCalibrationsRequest page;
  page.set_page_size(1);
  const auto listed = client->ListCalibrations(page);
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->calibrations(0).calibration(), second->calibration());
  EXPECT_NE(listed->next_page_token(), "");
}

TEST_F(FleetScaleTest, ARequestThatMeansNothingIsRefusedByField) {
  const auto server = Started(WithDriver());
  const auto client = ClientOf(*server);
  const auto refused = [&](const auto& change) {
    v1::StartCalibrationRequest request = AllToAlls("bad", 2, 1);
    change(request);
    return client->StartCalibration(request);
  };
  using R = v1::StartCalibrationRequest;
  const auto is = [](const std::string& text) { return IsError(StatusCode::kInvalidInput, text); };
  EXPECT_THAT(refused([](R& r) { r.clear_request_id(); }), is("requestId: found 0 bytes"));
  EXPECT_THAT(refused([](R& r) { r.set_cluster("a b"); }), is("cluster: found 'a b'"));
  EXPECT_THAT(refused([](R& r) { r.set_budget_s(0); }), is("budgetS: found 0"));
  EXPECT_THAT(refused([](R& r) { r.set_wait_limit_s(-1); }), is("waitLimitS: found -1"));
  EXPECT_THAT(refused([](R& r) { r.mutable_operations(0)->set_group_size(0); }), is("operations[0]"));
  EXPECT_THAT(refused([](R& r) { r.mutable_grid()->add_workloads(); }), is("grid: "));
  EXPECT_THAT(refused([](R& r) { r.add_models(); }), is("models: found them beside grid or operations"));
  const auto models = [](int count) {
    return [count](R& r) {
      r.clear_operations();
      for (int i = 0; i < count; ++i) (*r.add_models()->mutable_fields())["hidden_size"].set_number_value(0);
    };
  };
  EXPECT_THAT(refused(models(1)), is("models[0]"));
  EXPECT_THAT(refused(models(17)), is("models: found 17"));
  const auto plain = Started(Options());
  EXPECT_THAT(ClientOf(*plain)->StartCalibration(AllToAlls("x", 2, 1)),
              IsError(StatusCode::kUnimplemented, "nothing to calibrate with"));
}

TEST_F(FleetScaleTest, ADuplicateAndAStrangerAreRefusedByName) {
  const auto server = Started(WithDriver());
  LightAgent first(server->grpc_address(), 0, 1, nullptr);
  ASSERT_TRUE(first.Connect().ok());
  const auto client = ClientOf(*server);
  ASSERT_TRUE(Await([&] { return client->ListAgents({})->agents_size() == 1; }, 10));
  v1::AgentRegistration other = client->ListAgents({})->agents(0).registration();
  const auto end_of = [&](const v1::AgentRegistration& registration) {
    std::promise<Status> ended;
    const auto connection = client::ConnectAgentWith({.address = server->grpc_address()})(
        registration,
        {.received = [](const v1::AttachResponse&) {}, .ended = [&](const Status& why) { ended.set_value(why); }});
    EXPECT_TRUE(connection.ok());
    return StatusOr<int>(ended.get_future().get());
  };
  other.set_name("twin");
  other.set_instance("other");
  EXPECT_THAT(end_of(other), IsError(StatusCode::kUnavailable,
                                     "found agent twin (node 0) beside agent "
                                     "light-0 (node 0)"));
  other.set_version("0.0.1");
  EXPECT_THAT(end_of(other), IsError(StatusCode::kInfeasible,
                                     "agent twin is of version 0.0.1 and this planner of "
                                     "version " MOEPLAN_VERSION));
  other.set_ranks_per_node(0);
  EXPECT_THAT(end_of(other), IsError(StatusCode::kInvalidInput, "ranksPerNode: found 0"));
  EXPECT_FALSE(first.ended().has_value());
}

}  // namespace
}  // namespace moeplan::service
