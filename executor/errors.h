// What goes wrong while a layer runs, worded once.
#pragma once

#include "models/status.h"
#include "models/text.h"

namespace moeplan::error {

inline Status MissedDeadline(int peer, const std::string& task, double bytes, double deadline_s) {
  return DeadlineExceeded(StrCat("rank ", peer, " did not answer within ", deadline_s, " s: task ", task, ", ", bytes, " bytes"));
}

inline Status LostPeer(int peer, const std::string& task, double bytes, const std::string& why) {
  return PeerLost(StrCat("rank ", peer, " is lost (", why, "): task ", task, ", ", bytes, " bytes"));
}

inline Status GateNotThere(std::string_view gate) {
  return Unimplemented(StrCat("layer.gate: found ", gate, ", expected TOP_K or SWITCH in this version"));
}

}  // namespace moeplan::error
