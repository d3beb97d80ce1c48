// What goes wrong on a virtual clock, worded once.
#pragma once

#include <string>
#include <vector>

#include "models/status.h"
#include "models/text.h"

namespace moeplan::executor::error {

// `blocked`: one clause for each stream that waits, such as "rank 0, stream COMPUTE, task a waits for ...". Only the
// first few are told.
inline Status Deadlock(double now_s, const std::vector<std::string>& blocked) {
  constexpr size_t kTold = 8;
  std::string message = StrCat("deadlock at ", now_s, " s: ");
  for (size_t i = 0; i < blocked.size() && i < kTold; ++i) message += (i == 0 ? "" : "; ") + blocked[i];
  if (blocked.size() > kTold) message += StrCat("; and ", blocked.size() - kTold, " more streams");
  return DeadlineExceeded(message);
}

inline Status DifferentOperations(const std::string& one, const std::string& other) {
  return InternalError(StrCat("members of a group run different operations: ", one, ", but ", other));
}

inline Status DifferentSizes(int from, size_t sent, int to, size_t expected) {
  return InternalError(StrCat("rank ", from, " sends ", sent, " bytes to rank ", to, ", which expects ", expected));
}

inline Status UnmatchedTransfer(int from, int to, const std::string& task) {
  return InternalError(StrCat("task ", task, ": a transfer from rank ", from, " to rank ", to, " has only one side"));
}

inline Status TwoStreamsAtOnce(const std::string& task) {
  return InternalError(StrCat("task ", task, ": its communicator is in use by another stream"));
}

inline Status StreamGoneEarly(const std::string& stream) {
  return Cancelled(StrCat("stream ", stream, " was destroyed before its work had passed"));
}

}  // namespace moeplan::executor::error
