// What becomes of the samples that a calibration of agents takes; what is measured is scripted.
#include "planner/service/fleet/calibrations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "light_agent.h"
#include "models/cost/plausible.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Cluster kCluster = {.nodes = 1, .gpus_per_node = 4};

// Of 4e9 bytes among 4 ranks.
Sample AllToAll(double time_s, Provenance provenance = {}) {
  return {.key = CollectiveKey{.collective = Collective::kAllToAll, .group = {.size = 4, .ranks_per_node = 4}},
          .size = 4e9,
          .times_s = {time_s},
          .provenance = std::move(provenance)};
}

class CalibrationsTest : public ServiceTest {
 protected:
  using Script = std::function<Status(const CalibrationWork& work, int session)>;

  // A planner of one agent, whose ranks nobody asks; `script` is called in each session, counted from 0.
  void Serve(Script script) {
    ServerOptions options = Options();
    if (!address_.empty()) options.grpc_address = address_;
    options.agents.driver = [this, script = std::move(script)](const RelayedRanks&, const CalibrationWork& work) {
      return script(work, sessions_++);
    };
    server_ = Started(options);
    address_ = server_->grpc_address();
    agent_ = std::make_unique<LightAgent>(address_, /*node=*/0, /*nodes=*/1, nullptr);
    ASSERT_TRUE(agent_->Connect().ok());
  }
  void StopServing() {
    server_->Shutdown();
    agent_.reset();
    server_.reset();
  }

  int StartCalibration() {
    v1::StartCalibrationRequest request;
    request.set_request_id("r");
    request.set_cluster("many");
    request.set_samples_only(samples_only_);
    const auto started = ClientOf(*server_)->StartCalibration(request);
    EXPECT_TRUE(started.ok()) << started.status().message();
    return started.ok() ? started->calibration() : 0;
  }
  v1::CalibrationStatus AwaitEnd(int calibration) {
    v1::GetCalibrationRequest request;
    request.set_calibration(calibration);
    const auto client = ClientOf(*server_);
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const auto answer = client->GetCalibration(request);
      if (!answer.ok()) continue;
      const auto state = answer->status().state();
      if (state != v1::CalibrationStatus::WAITING && state != v1::CalibrationStatus::RUNNING) return answer->status();
    }
    ADD_FAILURE() << "it goes on";
    return {};
  }

  // The times that count, in the order kept.
  std::vector<double> Stored() const {
    std::vector<double> times_s;
    const auto found = Store::OpenReadOnly(db())->SamplesOf({});
    if (!found.ok()) return times_s;
    for (const Calibration& calibration : *found) {
      for (const Sample& sample : calibration.samples.samples) times_s.push_back(sample.times_s.front());
    }
    return times_s;
  }
  // In the order kept.
  std::vector<RejectedSample> Rejected() const {
    std::vector<RejectedSample> rejected = Store::OpenReadOnly(db())->ListRejectedSamples()->samples;
    std::ranges::reverse(rejected);
    return rejected;
  }

  bool samples_only_ = true;
  // Of scripts, which end with the server.
  std::vector<std::vector<double>> taken_ = std::vector<std::vector<double>>(3);
  std::atomic<bool> waits_ = false;
  std::atomic<int> sessions_ = 0;

  std::unique_ptr<Server> server_;
  std::unique_ptr<LightAgent> agent_;
  std::string address_;
};

auto IsRejected(const std::string& request_id, const std::string& reason) {
  return AllOf(Field(&RejectedSample::request_id, request_id), Field(&RejectedSample::reason, HasSubstr(reason)));
}

TEST_F(CalibrationsTest, WhatCannotBeRightIsSetAsideWithItsReasonAndTheRestCounts) {
  // 3e9 bytes leave each rank: 30 ms at 100e9 bytes/s.
  const Provenance link = {{kLinkBytesPerSKey, "100e9"}};
  Serve([&](const CalibrationWork& work, int) -> Status {
    for (const Sample& sample : {AllToAll(31e-3, link), AllToAll(std::numeric_limits<double>::quiet_NaN()), AllToAll(0),
                                 AllToAll(-1), AllToAll(1e-3, link), AllToAll(1, {{"agent", "stranger"}}),
                                 AllToAll(2, {{"agent", "light-0"}, {"launch", "own"}})}) {
      RETURN_IF_ERROR(work.keep(kCluster, sample));
    }
    return OkStatus();
  });
  const v1::CalibrationStatus ended = AwaitEnd(StartCalibration());
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::DONE) << ended.detail();
  EXPECT_EQ(ended.samples(), 2);
  EXPECT_THAT(Stored(), ElementsAre(31e-3, 2));
  const std::vector<RejectedSample> rejected = Rejected();
  ASSERT_THAT(rejected,
              ElementsAre(IsRejected("fleet calibration 1 sample 1", "timeS[0]: found nan"),
                          IsRejected("fleet calibration 1 sample 2", "timeS[0]: found 0,"),
                          IsRejected("fleet calibration 1 sample 3", "timeS[0]: found -1"),
                          IsRejected("fleet calibration 1 sample 4", "expected at most provenance.linkBytesPerS"),
                          IsRejected("fleet calibration 1 sample 5", "provenance.agent: found 'stranger'")));
  EXPECT_THAT(rejected[3].sample.provenance,
              testing::IsSupersetOf({testing::Pair(kLinkBytesPerSKey, "100e9"), testing::Pair("launch", "agents")}));
  EXPECT_EQ(rejected[3].profile_name, "many");
}

TEST_F(CalibrationsTest, NothingIsLostOrDoubledWhereRanksOrThePlannerComeAndGo) {
  const Script script = [&](const CalibrationWork& work, int session) -> Status {
    for (const Sample& sample : work.taken) taken_.at(session).push_back(sample.times_s.front());
    // The same each time, to the bit: a sample is told from an earlier one by its place alone.
    for (const double time_s : {1.0, 0.0, 2.0, 0.0}) RETURN_IF_ERROR(work.keep(kCluster, AllToAll(time_s)));
    if (session == 0) return PeerLost("its agent has left");
    if (session == 2) return OkStatus();
    for (waits_ = true; !work.stop.stop_requested();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Cancelled("stopped");
  };
  Serve(script);
  const int calibration = StartCalibration();
  for (int i = 0; i < 10000 && !waits_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(waits_);
  StopServing();
  Serve(script);
  const v1::CalibrationStatus ended = AwaitEnd(calibration);
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::DONE) << ended.detail();
  EXPECT_EQ(ended.samples(), 6);
  EXPECT_THAT(taken_, ElementsAre(IsEmpty(), ElementsAre(1, 2), ElementsAre(1, 2, 1, 2)));
  EXPECT_THAT(Stored(), ElementsAre(1, 2, 1, 2, 1, 2));
  std::vector<std::string> places;
  for (const RejectedSample& sample : Rejected()) places.push_back(sample.request_id);
  const std::string sample = StrCat("fleet calibration ", calibration, " sample ");
  EXPECT_THAT(places, ElementsAre(sample + "1", sample + "3", sample + "5", sample + "7", sample + "9", sample + "11"));
}

TEST_F(CalibrationsTest, WhereNothingCountsItFailsAndSaysWhereToLook) {
  samples_only_ = false;
  Serve([](const CalibrationWork& work, int) { return work.keep(kCluster, AllToAll(0)); });
  const v1::CalibrationStatus ended = AwaitEnd(StartCalibration());
  EXPECT_EQ(ended.state(), v1::CalibrationStatus::FAILED);
  EXPECT_EQ(ended.detail(),
            "found 1 samples that cannot be right, expected one that can; `moeplan profile rejected` tells why");
}

}  // namespace
}  // namespace moeplan::service
