// What puts share: fits and profiles are saved one after another, and each request becomes one version.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "db/store.h"
#include "models/status.h"

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

struct Puts {
  std::mutex in_turn;  // Held from the look for a request's version until it is saved.
};

}  // namespace moeplan::service
