// What puts share: of one name, fits and profiles are saved one after another, and each request becomes one version.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "db/store.h"
#include "models/status.h"
#include "planner/service/samples/fit_memory.h"

namespace moeplan::service {

// 1 to 128 bytes.
Status ValidateRequestId(const std::string& request_id);
// At most as many.
Status ValidateCalibration(const std::string& calibration);

// Stores `profile` as the next version of its name, unless the newest says the same, and remembers the version by
// `request`, which is new: Store::VersionOfRequest knows it after a restart, too. `withdrawal` as in
// Store::SaveProfile.
StatusOr<ProfileVersion> SaveOnce(Store& store, const std::string& request, const Profile& profile,
                                  std::optional<std::int64_t> withdrawal = {});

class Puts {
 public:
  // Held from the look for a request's version until it is saved. Movable; its Puts must outlive it.
  class Turn {
   public:
    Turn(Puts& puts, std::string name) : puts_(&puts), name_(std::move(name)) {}
    Turn(Turn&& other) noexcept : puts_(std::exchange(other.puts_, nullptr)), name_(std::move(other.name_)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    Puts* puts_;
    std::string name_;
  };

  // Waits until nobody else has the turn of this profile. kCancelled: `stop` was requested before.
  StatusOr<Turn> TakeTurn(const std::string& profile_name, std::stop_token stop);

  FitMemory& fits() { return fits_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any released_;
  std::set<std::string> taken_;  // Guarded by mutex_.
  FitMemory fits_;
};

}  // namespace moeplan::service
