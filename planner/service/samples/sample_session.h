// One measuring session's samples, as they are taken: each is screened and stored for good before the next is taken, so
// that whoever is killed loses none, and what was stored counts when the session goes on.
//
// A sample is one batch, with the session and its place in it as its request id. One that must not count (screen.h) is
// set aside with the reason, and takes a place like any other. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "db/store.h"
#include "models/cost/samples.h"
#include "models/status.h"
#include "planner/service/samples/screen.h"

namespace moeplan::service {

class SampleSession {
 public:
  // `store` is borrowed. `session` is what the store calls the calibration.
  SampleSession(Store& store, std::string session, std::string profile_name, MayNameAgent may_name_agent = nullptr)
      : store_(&store),
        session_(std::move(session)),
        profile_name_(std::move(profile_name)),
        may_name_agent_(std::move(may_name_agent)) {}

  // The samples of this session that are stored already, in their places; the next sample's place is behind them.
  StatusOr<std::vector<Sample>> Resume();

  // Returns once the sample is stored and synced.
  Status Keep(const Cluster& cluster, const Sample& sample);

  const std::string& session() const { return session_; }
  int kept() const { return kept_; }            // Samples stored, those of earlier with them.
  int set_aside() const { return set_aside_; }  // Since this was made.

 private:
  StatusOr<std::string> NextRequestId();

  Store* store_;
  std::string session_, profile_name_;
  MayNameAgent may_name_agent_;
  int place_ = 0;  // Of the next sample, or before it.
  int kept_ = 0;
  int set_aside_ = 0;
};

}  // namespace moeplan::service
