#include "planner/client/errors.h"

#include "models/text.h"
#include "proto/grpc_status.h"

namespace moeplan::client::error {

Status NoPlanner(const std::string& address, std::string_view detail) {
  return Unavailable(StrCat("no planner answers at ", address, "; start one with `moeplan serve --db DB --grpc ",
                            address, "` (", detail, ")"));
}

Status TooSlow(const std::string& address, double deadline_s) {
  return DeadlineExceeded(StrCat("the planner at ", address, " did not answer within ", deadline_s, " s"));
}

Status BadDeadline(double found) {
  return InvalidInput(StrCat("deadline: found ", found, " s, expected a finite time above 0"));
}

Status TooLarge(size_t found_bytes) {
  return InvalidInput(
      StrCat("request: found ", found_bytes, " bytes, expected at most ", kMaxGrpcMessageBytes, "; send it in parts"));
}

}  // namespace moeplan::client::error
