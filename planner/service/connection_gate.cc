#include "planner/service/connection_gate.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/text.h"
#include "planner/service/errors.h"

namespace moeplan::service {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPauseAfterFailure{50};
// To look which of 4096 are open takes about a millisecond; whoever knocks when it is full must not have it done each
// time.
constexpr std::chrono::milliseconds kBetweenCounts{10};
constexpr std::chrono::minutes kBetweenWarnings{1};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The port of either family stands in the same place.
in_port_t& PortOf(sockaddr_storage& address) { return reinterpret_cast<sockaddr_in&>(address).sin_port; }

int PortOf(const Descriptor& listener) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  return getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0 ? ntohs(PortOf(bound)) : 0;
}

bool IsWildcard(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return address.ai_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
}

void Set(const Descriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);
}

// Invalid, with errno: it cannot be listened on.
Descriptor ListenOn(sockaddr_storage address, socklen_t size, int port) {
  PortOf(address) = htons(static_cast<in_port_t>(port));
  Descriptor listener(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return listener;
  // What a server that ended just now left behind is no obstacle; sharing the port with another is not offered.
  Set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ss_family == AF_INET6) {
    const bool both = IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr);
    Set(listener, IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
  }
  Set(listener, IPPROTO_TCP, TCP_NODELAY, 1);  // Those that are accepted inherit it.
  const bool listens = bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       listen(listener.get(), SOMAXCONN) == 0;
  return listens ? std::move(listener) : Descriptor();
}

Descriptor ListenOn(const addrinfo& address, int port) {
  sockaddr_storage copy = {};
  std::memcpy(&copy, address.ai_addr, address.ai_addrlen);
  return ListenOn(copy, address.ai_addrlen, port);
}

Descriptor ListenOnAll(int port) {
  sockaddr_storage any = {};
  any.ss_family = AF_INET6;
  return ListenOn(any, sizeof(sockaddr_in6), port);
}

// None, with errno: there is no address to listen on.
std::vector<Descriptor> ListenersOf(const addrinfo* addresses, int port) {
  std::vector<Descriptor> listeners;
  int problem = 0;
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    if (IsWildcard(*address)) {
      if (Descriptor all = ListenOnAll(port); all.valid()) {
        listeners.clear();
        listeners.push_back(std::move(all));
        return listeners;
      }
    }
    Descriptor listener = ListenOn(*address, port);
    if (!listener.valid()) {
      problem = errno;
      continue;
    }
    if (port == 0) port = PortOf(listener);
    listeners.push_back(std::move(listener));
  }
  errno = problem;
  return listeners;
}

ino_t InodeOf(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

class OnceAMinute {
 public:
  bool MayTell() {
    const Clock::time_point now = Clock::now();
    if (now < next_) return false;
    next_ = now + kBetweenWarnings;
    return true;
  }

 private:
  Clock::time_point next_;
};

class Gate final : public ConnectionGate {
 public:
  Gate(HostPort address, std::vector<Descriptor> listeners, Descriptor ending)
      : address_(std::move(address)), listeners_(std::move(listeners)), ending_(std::move(ending)) {}

  ~Gate() override {
    thread_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(ending_.get(), &one, sizeof one);
  }

  HostPort address() const override { return address_; }

  void Open(Uses uses) override {
    uses_ = std::move(uses);
    thread_ = std::jthread([this](const std::stop_token& ending) { Run(ending); });
  }

 private:
  void Run(const std::stop_token& ending) {
    std::vector<pollfd> waits = {{.fd = ending_.get(), .events = POLLIN, .revents = 0}};
    for (const Descriptor& listener : listeners_) {
      waits.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
    }
    while (!ending.stop_requested()) {
      int problem = 0;
      if (poll(waits.data(), waits.size(), /*timeout=*/-1) < 0) {
        if (errno == EINTR) continue;
        problem = errno;
      } else {
        if (waits.front().revents != 0) return;
        for (size_t i = 1; i < waits.size(); ++i) {
          if (waits[i].revents != 0 && !AcceptOne(waits[i].fd)) problem = errno;
        }
      }
      if (problem == 0) continue;
      // Out of file descriptors, most likely; others may end meanwhile.
      Tell(problem);
      std::this_thread::sleep_for(kPauseAfterFailure);
    }
  }

  void Tell(int problem) {
    if (!failures_.MayTell()) return;
    uses_.log(
        {LogLevel::kError, "connections to --grpc cannot be accepted for now", {{"reason", std::strerror(problem)}}});
  }

  // False, with errno: nothing can be accepted for now.
  bool AcceptOne(int listener) {
    Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    connections_.erase(socket.get());  // What had this descriptor before has ended.
    if (!HasRoom()) {
      Refuse();
      return true;
    }
    // Not on the listener: connections that wait for Open were made before it is known.
    Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, uses_.unacknowledged_ms);
    connections_[socket.get()] = InodeOf(socket.get());
    uses_.take(socket.Release());
    return true;
  }

  bool HasRoom() {
    const auto most = static_cast<size_t>(uses_.most_connections);
    if (connections_.size() < most) return true;
    if (Clock::now() < next_count_) return false;
    std::erase_if(connections_, [](const auto& one) { return InodeOf(one.first) != one.second; });
    if (connections_.size() < most) return true;
    next_count_ = Clock::now() + kBetweenCounts;
    return false;
  }

  void Refuse() {
    ++refused_;
    uses_.refused();
    if (!refusals_.MayTell()) return;
    uses_.log({LogLevel::kWarning,
               "connections to --grpc are refused: there are --max-grpc-connections",
               {{"connections", StrCat(connections_.size())}, {"refused", StrCat(refused_)}}});
  }

  const HostPort address_;
  const std::vector<Descriptor> listeners_;
  const Descriptor ending_;
  Uses uses_;
  // Inodes by descriptor. Somebody else closes the sockets, and what has the descriptor then has another inode; those
  // that have ended go when it is full. Of the thread, as is all below.
  std::unordered_map<int, ino_t> connections_;
  Clock::time_point next_count_;  // Not to be asked again before: all of them were open.
  OnceAMinute failures_, refusals_;
  std::uint64_t refused_ = 0;  // Since the start.
  std::jthread thread_;        // Last: it uses all of the above.
};

}  // namespace

StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(const HostPort& address) {
  const addrinfo hints = {.ai_flags = AI_NUMERICSERV | AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(address.host.c_str(), StrCat(address.port).c_str(), &hints, &found);
  if (unknown != 0) return error::CannotListen("--grpc", ToString(address), gai_strerror(unknown));
  const Addresses owner(found, freeaddrinfo);
  std::vector<Descriptor> listeners = ListenersOf(found, address.port);
  if (listeners.empty()) {
    const int problem = errno;
    return problem == EADDRINUSE ? error::AddressInUse("--grpc", ToString(address))
                                 : error::CannotListen("--grpc", ToString(address), std::strerror(problem));
  }
  Descriptor ending(eventfd(0, EFD_CLOEXEC));
  if (!ending.valid()) return error::CannotListen("--grpc", ToString(address), std::strerror(errno));
  const HostPort bound = {address.host, PortOf(listeners.front())};
  return std::unique_ptr<ConnectionGate>(std::make_unique<Gate>(bound, std::move(listeners), std::move(ending)));
}

}  // namespace moeplan::service
