// What goes wrong while a layer runs, worded once.
#pragma once

#include "models/status.h"
#include "models/text.h"

namespace moeplan::error {

inline Status MissedDeadline(int peer, const std::string& task, double bytes) {
  return DeadlineExceeded(StrCat("rank ", peer, " did not answer in time: task ", task, ", ", bytes, " bytes"));
}

inline Status LostPeer(int peer, const std::string& task, double bytes, const std::string& why) {
  return PeerLost(StrCat("rank ", peer, " is lost (", why, "): task ", task, ", ", bytes, " bytes"));
}

}  // namespace moeplan::error
