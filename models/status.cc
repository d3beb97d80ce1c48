#include "models/status.h"

namespace moeplan {

Status Status::Within(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

std::string_view Name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidInput: return "INVALID_INPUT";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kInfeasible: return "INFEASIBLE";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case StatusCode::kPeerLost: return "PEER_LOST";
    case StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case StatusCode::kDataLoss: return "DATA_LOSS";
    case StatusCode::kUnimplemented: return "UNIMPLEMENTED";
    case StatusCode::kCancelled: return "CANCELLED";
    case StatusCode::kInternal: return "INTERNAL";
  }
  return "INTERNAL";
}

}  // namespace moeplan
