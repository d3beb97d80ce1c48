// HOST:PORT as addresses are written on the command line: "127.0.0.1:7070", "node7:7070", "[::1]:7070".
#pragma once

#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan {

struct HostPort {
  std::string host;  // Without the brackets of an IPv6 address.
  int port = 0;      // 0 to 65535.

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// kInvalidInput beginning with `field` ("--grpc"). The host is not looked up.
StatusOr<HostPort> ParseHostPort(std::string_view text, std::string_view field);

// "127.0.0.1:7070", "[::1]:7070".
std::string ToString(const HostPort& address);

// Whether only this machine can reach it: 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(const HostPort& address);

}  // namespace moeplan
