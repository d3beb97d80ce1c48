// The calibrations that were asked for: each waits for the agents of its cluster, measures with their ranks, keeps
// every sample as it is taken (samples/sample_session.h), and ends with a profile.
//
// What was asked for and how far it is stands in the store, so that a planner that is started again goes on by itself
// with what is left of the budget: no sample is stored twice, and what is stored is not measured anew. When agents are
// lost the calibration waits for them, or for others in their places, and goes on with new ranks. Calibrations of one
// cluster happen one after another, in the order in which they were asked for.
//
// Threads: any; none of the calls waits for a rank. Each calibration that has not ended has a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "db/store.h"
#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "planner/service/fleet/agent_hub.h"
#include "planner/service/fleet/calibration_driver.h"
#include "planner/service/puts.h"
#include "planner/service/samples/sample_session.h"

namespace moeplan::service {

class Calibrations {
 public:
  struct Uses {
    Store& store;
    Puts& puts;
    AgentHub& hub;
    CalibrationDriver driver;  // Empty: Start answers kUnimplemented.
    std::function<void(std::string_view line)> log = [](std::string_view) {};
    // Told of each that has ended, once that is stored, on its thread.
    std::function<void(const CalibrationJob& job)> ended = [](const CalibrationJob&) {};
  };

  // The session that the store keeps its samples under.
  static std::string SessionOf(const CalibrationJob& job);

  explicit Calibrations(Uses uses) : uses_(std::move(uses)) {}
  // Stops them where they are; they go on when the store is served again.
  ~Calibrations();
  Calibrations(const Calibrations&) = delete;

  // Goes on with what had not ended; without a driver it stays as it is.
  Status Resume();

  // The number of the calibration. kInvalidInput names the field; kUnavailable: there are too many.
  StatusOr<std::int64_t> Start(const v1::StartCalibrationRequest& request);
  StatusOr<v1::CalibrationStatus> Get(std::int64_t calibration) const;
  StatusOr<v1::ListCalibrationsResponse> List(const v1::ListCalibrationsRequest& request) const;
  // How it stands then; one that runs ends a moment later.
  StatusOr<v1::CalibrationStatus> Cancel(std::int64_t calibration);

  // How many have ended since the start.
  struct Ended {
    int done = 0, failed = 0, cancelled = 0;
  };
  Ended ended() const;

  // Stops them all, as the destructor.
  void Stop();

 private:
  struct Running {
    CalibrationJob job;  // `newest` is how far it is now.
    v1::StartCalibrationRequest request;
    double kept_spent_s = 0;               // What of the spent time the store knows.
    Provenance facts;                      // What the hub says of the launch; the thread's alone, as below.
    std::optional<SampleSession> session;  // Made anew whenever ranks are started; the thread's alone.
    bool cancelled = false;
    bool ended = false;
    std::jthread thread;
  };

  void Launch(CalibrationJob job, v1::StartCalibrationRequest request);
  void Reap();  // Of those that have ended; requires the lock.

  // On the thread of one.
  void Run(Running& running, const std::stop_token& stop);
  StatusOr<int> Calibrate(Running& running, const std::stop_token& stop);
  Status AwaitTurn(Running& running, const std::stop_token& stop);
  Status AwaitAgents(Running& running, const std::stop_token& stop);
  Status Measure(Running& running, const std::stop_token& stop);
  StatusOr<CalibrationWork> WorkOf(Running& running, const std::stop_token& stop);
  Status Keep(Running& running, const Cluster& cluster, const Sample& sample);
  StatusOr<int> Fit(const Running& running, const std::stop_token& stop);
  // Notes how far it is; a change of state, and the spent time every now and then, goes into the store.
  void Note(Running& running, v1::CalibrationStatus::State state, const std::string& detail, int profile_version = 0);
  void Spend(Running& running, double spent_s, const std::string& what);

  const Uses uses_;
  mutable std::mutex mutex_;
  Ended ended_;  // Guarded by mutex_.
  std::condition_variable_any turns_;
  std::map<std::int64_t, std::unique_ptr<Running>>
      running_;  // Guarded by mutex_, with what they point to, but threads.
  bool stopping_ = false;
};

}  // namespace moeplan::service
