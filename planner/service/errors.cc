#include "planner/service/errors.h"

#include "models/text.h"
#include "proto/grpc_status.h"

namespace moeplan::service::error {
Status NotLoopback(std::string_view field, const std::string& address) {
  return InvalidInput(StrCat(field, ": found ", address,
                             ", which other machines reach, expected --tls-cert and --tls-key beside it, an address of "
                             "this machine such as 127.0.0.1:7070, or --insecure"));
}

Status ExposedHttp2(std::string_view field, const std::string& address) {
  return InvalidInput(StrCat(field, ": found ", address,
                             ", where strangers reach gRPC's HTTP/2 before any token is asked for, expected an address "
                             "of this machine such as 127.0.0.1:7071 behind a front (docs/operations.md), "
                             "--tls-client-ca beside it, or --exposed-http2"));
}

Status AddressInUse(std::string_view field, const std::string& address) {
  return Unavailable(StrCat(field, ": ", address,
                            " is in use; stop the server that listens there or give another port (0: any free one)"));
}

Status CannotListen(std::string_view field, const std::string& address, std::string_view reason) {
  return Unavailable(StrCat(field, ": ", address, " cannot be listened on (", reason, ")"));
}

Status MayNotListen(std::string_view field, const std::string& address) {
  return PermissionDenied(StrCat(field, ": ", address, " may not be listened on; give a port above 1023"));
}

grpc::Status QueueFull() {
  return RpcError(grpc::RESOURCE_EXHAUSTED, "QUEUE_FULL", "the planner has too many calls waiting; try again later");
}

grpc::Status UnreadableRequest() {
  return RpcError(grpc::INVALID_ARGUMENT, Name(StatusCode::kInvalidInput),
                  "request: found bytes that are no such message, expected the method's request");
}

Status CallerLeft() { return Cancelled("the caller left, or its deadline passed, before the call was done"); }

Status ReadOnly() {
  return PermissionDenied("the planner may only read its database; give it one that it may write to");
}

Status WatchEnds() { return Unavailable("the planner shuts down; watch again with the plan that is held"); }

grpc::Status TooManyWatchers(int most) {
  return {grpc::RESOURCE_EXHAUSTED,
          StrCat("found ", most, " watchers of plans already, expected fewer; ask for the plan instead")};
}

Status Unexpected(std::string_view detail) { return InternalError(StrCat("the planner failed: ", detail)); }

grpc::Status TooLate() {
  return RpcError(grpc::DEADLINE_EXCEEDED, Name(StatusCode::kDeadlineExceeded),
                  "the call was not done within its time");
}

grpc::Status NoToken() {
  return RpcError(grpc::UNAUTHENTICATED, "NO_TOKEN",
                  "this planner asks for a token; give the one that `moeplan token create` printed in MOEPLAN_TOKEN or "
                  "as `authorization: Bearer TOKEN`");
}

grpc::Status UnknownToken() {
  return RpcError(
      grpc::UNAUTHENTICATED, "UNKNOWN_TOKEN",
      "the token is not one of this planner's, or has been revoked; `moeplan token create` makes a new one");
}

grpc::Status TokenExpired(const std::string& name) {
  return RpcError(grpc::UNAUTHENTICATED, "TOKEN_EXPIRED",
                  StrCat("the token '", name, "' has expired; `moeplan token create` makes a new one"));
}

grpc::Status RoleTooLow(const std::string& name, std::string_view role) {
  return RpcError(grpc::PERMISSION_DENIED, "ROLE_TOO_LOW",
                  StrCat("the token '", name, "' may not do this; it needs the role ", role));
}

Status BothAlternatives(std::string_view first, std::string_view second) {
  return InvalidInput(StrCat(second, ": found beside ", first, ", expected one of the two"));
}

Status BadRequestId(size_t found_bytes, size_t limit_bytes) {
  return InvalidInput(StrCat("requestId: found ", found_bytes, " bytes, expected 1 to ", limit_bytes));
}

Status BadCalibration(size_t found_bytes, size_t limit_bytes) {
  return InvalidInput(StrCat("calibration: found ", found_bytes, " bytes, expected at most ", limit_bytes));
}

Status MixedClusters(const std::string& profile_name, const std::string& calibration) {
  return InvalidInput(StrCat("samples named '", profile_name, "': found those of calibration '", calibration,
                             "' to be of another cluster than the first, expected one; give another cluster another "
                             "name"));
}

Status NothingPossible(const std::string& profile_name, int samples) {
  return Infeasible(StrCat("samples named '", profile_name, "': found ", samples,
                           " of sizes, times or rates that no machine has, expected one that is possible; "
                           "`moeplan profile withdraw` takes them out"));
}

Status NoCost(const std::string& profile_name, int profile_version, const std::string& cost) {
  return NotFound(StrCat("profile '", profile_name, "' version ", profile_version, ": holds no cost '", cost,
                         "'; GetProfile tells what is there"));
}

Status RequestReused(const std::string& request_id) {
  return InvalidInput(
      StrCat("request '", request_id, "': brought another profile before; give every new profile a new request id"));
}

}  // namespace moeplan::service::error
