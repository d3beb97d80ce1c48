// What Prometheus reads. deploy/monitoring/ has the dashboard and the alerts that use these names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "models/cost/profile.h"
#include "planner/service/calls/call.h"
#include "planner/service/drift/drift_desk.h"

namespace moeplan::service {

class Metrics {
 public:
  // What is looked up when the page is asked for.
  struct Now {
    int calls_in_progress = 0;
    uint64_t cache_hits = 0, cache_misses = 0;
    double cache_bytes = 0;
    double database_bytes = 0;
    int agents_attached = 0, agents_missing = 0;
    int calibrations_done = 0, calibrations_failed = 0, calibrations_cancelled = 0;
    int watchers = 0;
    std::map<std::string, DriftDesk::Counts> drifts;  // By profile.
  };
  explicit Metrics(std::function<Now()> now);
  ~Metrics();

  // An answered call. Any thread; takes no lock of ours.
  void Answered(const Call& call, const Answer& answer);

  // The same for one that was answered from memory.
  void AnsweredQuietly(const Method& method, std::string_view transport, double seconds);
  // Somebody who was refused before a call was made of it.
  void Refused(const grpc::Status& why);
  // A gRPC connection that was one too many.
  void ConnectionRefused();
  // A search for a plan that has ended.
  void Searched(double seconds);
  // Samples that were brought and acknowledged.
  void Acknowledged(int stored, int rejected);
  // A run that was reported.
  void Reported();
  // The newest version of a profile.
  void Fitted(const Profile& profile);

  // The page, in Prometheus' text format.
  std::string Page() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan::service
