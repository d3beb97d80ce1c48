// Keeps profiles true: watches what jobs report, has the agents measure again what drifted, and stores what came of it.
//
// Every entry of a profile's newest version that reports speak of has a test of its own (planner/drift/level_test.h),
// which starts anew with the next version. What a test finds is measured again by the cluster's agents, all entries of
// the same resource with it (planner/drift/remeasure.h), as a calibration of its own; meanwhile, and for an hour where
// that failed, the resource's tests rest. When it has ended, entries that moved are fitted to the new samples alone,
// older samples of them retire, and the profile has a new version. Entries that are as before were seen through
// something else, such as other jobs on the machine: their tests go on at the level that was seen, so that they are not
// measured over and over, until runs find them as predicted again.
//
// Tests and the list of drifts are in memory; calibrations and what comes of them are in the store, and a planner that
// is started again brings to an end what it finds there, unless a newer version has been stored meanwhile.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "db/store.h"
#include "models/cost/profile.h"
#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/drift/level_test.h"
#include "planner/drift/remeasure.h"
#include "planner/drift/run_ratios.h"
#include "planner/service/drift/drift_options.h"
#include "planner/service/fleet/calibrations.h"
#include "planner/service/puts.h"

namespace moeplan::service {

class DriftDesk {
 public:
  struct Uses {
    Store& store;
    Puts& puts;
    Calibrations& calibrations;
    DriftOptions options = {};
    std::function<void(std::string_view line)> log = [](std::string_view) {};
  };

  explicit DriftDesk(Uses uses) : uses_(std::move(uses)) {}
  DriftDesk(const DriftDesk&) = delete;

  // What one run of a plan of `workload` (resolved) said beside `profile`, the newest version of its name; whether each
  // ratio made its test find a drift. Begins to measure again where one did.
  std::vector<bool> Observe(const Profile& profile, const Workload& workload,
                            const std::vector<planner::CostRatio>& ratios);

  // A version was stored, by whomever.
  void Stored(const std::string& profile_name, int version);

  // A calibration that has ended, of whatever kind, in the store as well.
  void Ended(const CalibrationJob& job);
  // Knows what is being measured again, and brings to an end what a planner that was killed had measured and not
  // judged; before calibrations go on and before anything is observed.
  Status Resume();

  // kInvalidInput: no such page.
  StatusOr<v1::ListDriftsResponse> List(const v1::ListDriftsRequest& request) const;

  // By profile: the tests' findings since the start, and the entries of the newest version of which the newest finding
  // is not confirmed or could not be measured again.
  struct Counts {
    int found = 0, off = 0;
  };
  std::map<std::string, Counts> counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  using ResourceOfProfile = std::pair<std::string, planner::Resource>;  // By the profile's name.

  struct Watched {
    planner::LevelTest test;
    std::optional<Clock::time_point> last;  // That counted.
  };
  struct WatchedProfile {
    int version = 0;
    std::map<CostKey, Watched> costs;
  };
  struct Shifted {
    CostKey key;
    planner::LevelShift shift;
  };
  struct Found {
    std::int64_t number = 0;  // From 1 on.
    CostKey key;
    double log_ratio = 0;
    v1::Drift drift;
    bool over = false;  // Runs find it as predicted again.
  };
  // What came of a calibration that measured again.
  struct Judged {
    int version = 0;  // Of the profile; 0: nothing moved.
    int against = 0;  // The newest version now.
    std::vector<CostKey> judged;
    std::vector<planner::MovedCost> moved;
  };

  // These require the lock. A version's tests begin; a cost that was known to be off is no more.
  void Begin(const std::string& profile_name, int version);
  void Return(const std::string& profile_name, const CostKey& key, planner::LevelTest& test);
  bool IsResting(const ResourceOfProfile& resource, Clock::time_point now) const;
  void MeasureAgain(const Profile& profile, const Workload& workload, const std::vector<Shifted>& shifted);
  StatusOr<std::int64_t> StartCalibration(const Profile& profile, const Workload& workload, const CostKey& drifted);
  void Note(const Profile& profile, const Shifted& shifted, const StatusOr<std::int64_t>& calibration);
  StatusOr<std::string> ClusterOf(const std::string& profile_name) const;
  StatusOr<Judged> Judge(const CalibrationJob& job);
  void Conclude(Found& found, const StatusOr<Judged>& judged);  // Requires the lock.

  const Uses uses_;
  std::mutex
      starting_;  // Held from the start of a calibration until it is noted, so that it does not end before. First.
  mutable std::mutex mutex_;
  std::map<std::string, WatchedProfile> watched_;  // By name; guarded by mutex_, as is all below.
  std::deque<Found> found_;                        // Oldest first, up to kMostKept.
  std::int64_t last_number_ = 0;
  std::map<std::string, int> found_of_profile_;
  std::map<ResourceOfProfile, std::int64_t> measuring_;         // Calibrations that have not ended; 0: about to start.
  std::map<ResourceOfProfile, Clock::time_point> rests_until_;  // Where measuring again has failed.
};

}  // namespace moeplan::service
