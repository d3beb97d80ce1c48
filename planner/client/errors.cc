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

Status BadPem(std::string_view option, const std::string& path) {
  return InvalidInput(StrCat(option, ": ", path,
                             ": found no PEM that can be read, expected a file that begins with "
                             "-----BEGIN"));
}

Status HalfAnIdentity() {
  return InvalidInput("--tls-cert, --tls-key: found one without the other, expected both or neither");
}

Status NoAuthority() {
  return InvalidInput("--tls-ca: found none, expected the authority of the planner's certificate beside --tls-cert");
}

Status BadToken() {
  return InvalidInput(
      "token: found a space, line break or other byte that no token has, expected what `moeplan token "
      "create` printed");
}

Status BareToken(const std::string& address) {
  return InvalidInput(StrCat("planner: found a token for ", address,
                             " without TLS, where others can read it on the way, expected --tls-ca beside it, or "
                             "--insecure"));
}

Status NoMethod(std::string_view found, std::string_view methods) {
  return InvalidInput(StrCat("METHOD: found ", found, ", expected one of ", methods));
}

}  // namespace moeplan::client::error
