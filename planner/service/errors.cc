#include "planner/service/errors.h"

#include "models/text.h"

namespace moeplan::service::error {
Status NotLoopback(std::string_view field, const std::string& address) {
  return InvalidInput(StrCat(field, ": found ", address,
                             ", expected an address of this machine such as 127.0.0.1:7070; this version neither "
                             "encrypts nor asks who calls"));
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

Status QueueFull() { return Unavailable("the planner has too many calls waiting; try again later"); }

Status CallerLeft() { return Cancelled("the caller left, or its deadline passed, before the call was done"); }

Status Unexpected(std::string_view detail) { return InternalError(StrCat("the planner failed: ", detail)); }

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

Status RequestReused(const std::string& request_id) {
  return InvalidInput(
      StrCat("request '", request_id, "': brought another profile before; give every new profile a new request id"));
}

}  // namespace moeplan::service::error
