// What puts share: they happen one after another, and the latest are remembered.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::service {

// 1 to 128 bytes.
Status ValidateRequestId(const std::string& request_id);

// The version that each of the latest requests became. Not locked.
class RecentPuts {
 public:
  std::optional<ProfileVersion> Find(const std::string& request_id) const;
  void Add(const std::string& request_id, const ProfileVersion& version);

 private:
  std::map<std::string, ProfileVersion> versions_;
  std::deque<std::string> oldest_first_;
};

struct Puts {
  std::mutex in_turn;          // Held for a whole put, so that none sees half of another.
  RecentPuts recent_profiles;  // Guarded by in_turn.
};

}  // namespace moeplan::service
