#include "planner/service/listen.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "models/text.h"
#include "planner/service/errors.h"

namespace moeplan::service {
namespace {

// 0, or why a socket cannot be bound there.
int BindError(const addrinfo& address) {
  const int socket_fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) return errno;
  const int yes = 1;  // What a server that ended just now left behind is no obstacle; one that listens is.
  setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int problem = bind(socket_fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(socket_fd);
  return problem;
}

// gRPC only says that it failed, so a probe asks the operating system why.
Status Probe(const HostPort& address, std::string_view field) {
  const addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(address.host.c_str(), StrCat(address.port).c_str(), &hints, &found);
  if (unknown != 0) return error::CannotListen(field, ToString(address), gai_strerror(unknown));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  switch (const int problem = BindError(*found)) {
    case 0: return OkStatus();
    case EADDRINUSE: return error::AddressInUse(field, ToString(address));
    case EACCES: return error::MayNotListen(field, ToString(address));
    default: return error::CannotListen(field, ToString(address), std::strerror(problem));
  }
}

}  // namespace

StatusOr<HostPort> AddressToListenOn(std::string_view text, std::string_view field, bool trusted) {
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text, field));
  if (!trusted && !IsLoopback(address)) return error::NotLoopback(field, ToString(address));
  RETURN_IF_ERROR(Probe(address, field));
  return address;
}

}  // namespace moeplan::service
