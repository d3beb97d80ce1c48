// Keeps profiles true: watches what jobs report, has the agents measure again what drifted, and stores what came of it.
//
// Every cost of a profile's newest version that reports speak of has a test of its own (planner/drift/level_test.h),
// which starts anew with the next version. What a test finds is measured again by the cluster's agents, all costs of
// the same resource with it (planner/drift/remeasure.h), as a calibration of that name. When it has ended, costs that
// moved are fitted to the new samples alone, older samples of them retire, and the profile has a new version. Costs
// that are as before were seen through something else, such as other jobs on the machine: their tests go on at the
// level that was seen, so that they are not measured over and over.
//
// Tests and the list of drifts are in memory; calibrations and what comes of them are in the store, and a planner that
// is started again brings to an end what it finds there.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "db/store.h"
#include "models/cost/profile.h"
#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/drift/level_test.h"
#include "planner/drift/remeasure.h"
#include "planner/drift/run_ratios.h"
#include "planner/service/fleet/calibrations.h"
#include "planner/service/handlers/puts.h"

namespace moeplan::service {

class DriftDesk {
 public:
  struct Uses {
    Store& store;
    Puts& puts;
    Calibrations& calibrations;
    std::function<void(std::string_view line)> log = [](std::string_view) {};
  };

  explicit DriftDesk(Uses uses) : uses_(std::move(uses)) {}
  DriftDesk(const DriftDesk&) = delete;

  // What one run of a plan of `workload` (resolved) said beside `profile`, the newest version of its name; whether each
  // ratio made its test find a drift. Begins to measure again where one did.
  std::vector<bool> Observe(const Profile& profile, const Workload& workload, const std::vector<CostRatio>& ratios);

  // A calibration that has ended, of whatever kind, in the store as well.
  void Ended(const CalibrationJob& job);
  // Brings to an end what a planner that was killed had measured and not judged.
  Status Resume();

  // kInvalidInput: no such page.
  StatusOr<v1::ListDriftsResponse> List(const v1::ListDriftsRequest& request) const;

  // By profile: the tests' findings since the start, and the costs of the version that runs are held against of which
  // the newest finding did not become a renewed version.
  struct Counts {
    int found = 0, off = 0;
  };
  std::map<std::string, Counts> counts() const;

 private:
  struct Watched {
    int version = 0;
    std::map<CostKey, LevelTest> tests;
  };
  struct Found {
    std::int64_t number = 0;  // From 1 on.
    CostKey key;
    double log_ratio = 0;
    v1::Drift drift;
  };

  void Find(const Profile& profile, const Workload& workload, const CostKey& key, const LevelShift& shift);
  StatusOr<std::int64_t> MeasureAgain(const Profile& profile, const Workload& workload, Resource resource);
  StatusOr<std::string> ClusterOf(const std::string& profile_name) const;
  // What came of a calibration that measured again.
  struct Judged {
    int version = 0;  // Of the profile; 0: nothing moved.
    std::vector<MovedCost> moved;
  };
  StatusOr<Judged> Judge(const CalibrationJob& job);

  const Uses uses_;
  mutable std::mutex mutex_;
  std::map<std::string, Watched> watched_;  // By profile name; guarded by mutex_, as is all below.
  std::deque<Found> found_;                 // Oldest first, up to kMostKept.
  std::int64_t last_number_ = 0;
  std::map<std::string, int> found_of_profile_;
  std::map<std::pair<std::string, Resource>, std::int64_t> measuring_;  // Calibrations that have not ended.
};

}  // namespace moeplan::service
