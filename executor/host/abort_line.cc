#include "executor/host/abort_line.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "executor/owned_fd.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxTextBytes = 4096;  // An abort must fit into a socket's buffer: nobody waits for a peer to read it.

Status SystemError(const std::string& what) { return Unavailable(StrCat(what, ": ", std::strerror(errno))); }

// The first address of `host`, which is a name or digits.
StatusOr<std::pair<sockaddr_storage, socklen_t>> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Unavailable(StrCat("cannot find the address ", host, ": ", gai_strerror(error)));
  std::pair<sockaddr_storage, socklen_t> address{};
  std::memcpy(&address.first, found->ai_addr, found->ai_addrlen);
  address.second = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

// "HOST:PORT" in digits, of a bound socket.
StatusOr<std::string> AddressOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const bool known = getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port, sizeof port,
                                 NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  if (!known) return SystemError("getsockname");
  return StrCat(std::string_view(host), ":", std::string_view(port));
}

Status AwaitReadable(int fd, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd wanted = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready > 0) return OkStatus();
    if (ready == 0) return DeadlineExceeded("no connection in time");
    if (errno != EINTR) return SystemError("poll");
  }
}

struct News {
  std::string group;
  Status why;
};

std::string ToBytes(const News& news) {
  const std::string text = news.why.message().substr(0, kMaxTextBytes);
  const uint32_t lengths[] = {static_cast<uint32_t>(news.why.code()), static_cast<uint32_t>(news.group.size()),
                              static_cast<uint32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) + news.group + text;
}

// Takes the first whole message from the front of `bytes`.
std::optional<News> TakeNews(std::string& bytes) {
  uint32_t lengths[3];
  if (bytes.size() < sizeof lengths) return std::nullopt;
  std::memcpy(lengths, bytes.data(), sizeof lengths);
  const auto& [code, group, text] = lengths;
  const size_t whole = sizeof lengths + size_t{group} + text;
  if (bytes.size() < whole) return std::nullopt;
  News news{bytes.substr(sizeof lengths, group),
            Status(static_cast<StatusCode>(code), bytes.substr(sizeof lengths + group, text))};
  bytes.erase(0, whole);
  return news;
}

class SocketLine final : public AbortLine {
 public:
  SocketLine(int rank, int size, OwnedFd listener, std::string address, OwnedFd wake)
      : rank_(rank),
        listener_(std::move(listener)),
        address_(std::move(address)),
        wake_(std::move(wake)),
        peers_(size) {}
  ~SocketLine() override {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
  }

  const std::string& address() const override { return address_; }

  // To lower ranks; from higher ones, who say who they are.
  Status Connect(const std::vector<std::string>& addresses, milliseconds timeout) override {
    const Clock::time_point deadline = Clock::now() + timeout;
    for (int peer = 0; peer < rank_; ++peer)
      RETURN_IF_ERROR(ConnectTo(peer, addresses[peer], timeout).Within(StrCat("connecting to rank ", peer)));
    for (int missing = static_cast<int>(peers_.size()) - 1 - rank_; missing > 0;) {
      RETURN_IF_ERROR(AwaitReadable(listener_.get(), deadline).Within("waiting for a higher rank"));
      missing -= Accept(deadline);
    }
    thread_ = std::thread([this] { Listen(); });
    return OkStatus();
  }

  void Join(const std::string& group, OnAbort on_abort) override {
    const std::lock_guard lock(mutex_);
    if (const Status why = FailureOf(group); !why.ok()) return on_abort(why);
    groups_[group] = std::move(on_abort);
  }

  void Leave(const std::string& group) override {
    const std::lock_guard lock(mutex_);
    groups_.erase(group);
  }

  void Abort(const std::string& group, const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (!FailureOf(group).ok()) return;
    Take({group, why});
    const std::string bytes = ToBytes({group, why});
    for (const Peer& peer : peers_) {
      if (peer.fd.get() >= 0) (void)!send(peer.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

  Status AwaitNews(const std::string& group, int peer, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !FailureOf(group).ok() || peers_[peer].ended; });
    return FailureOf(group);
  }

 private:
  struct Peer {
    OwnedFd fd;
    std::string unread;
    bool ended = false;
  };

  Status ConnectTo(int peer, const std::string& address, milliseconds timeout) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos) return InternalError(StrCat("found address ", address, ", expected HOST:PORT"));
    ASSIGN_OR_RETURN(const auto to, Resolve(address.substr(0, colon), address.substr(colon + 1)));
    OwnedFd fd(socket(to.first.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return SystemError("socket");
    const timeval limit = {.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.first), to.second) != 0) return SystemError("connect");
    const auto own_rank = static_cast<uint32_t>(rank_);
    if (send(fd.get(), &own_rank, sizeof own_rank, MSG_NOSIGNAL) != sizeof own_rank) return SystemError("send");
    peers_[peer].fd = std::move(fd);
    return OkStatus();
  }

  // How many ranks this connects: one, or none where the other end is no rank that is missing.
  int Accept(Clock::time_point deadline) {
    OwnedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    uint32_t rank = 0;
    const bool said = fd.get() >= 0 && AwaitReadable(fd.get(), deadline).ok() &&
                      recv(fd.get(), &rank, sizeof rank, MSG_DONTWAIT) == sizeof rank;
    const bool expected = said && rank > static_cast<uint32_t>(rank_) && rank < peers_.size();
    if (!expected || peers_[rank].fd.get() >= 0) return 0;
    peers_[rank].fd = std::move(fd);
    return 1;
  }

  void Listen() {
    while (true) {
      std::vector<pollfd> wanted = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
      for (const Peer& peer : peers_)
        wanted.push_back({.fd = peer.ended ? -1 : peer.fd.get(), .events = POLLIN, .revents = 0});
      if (poll(wanted.data(), wanted.size(), /*timeout=*/-1) < 0 && errno != EINTR) return;
      if (wanted[0].revents != 0) return;
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < peers_.size(); ++i) {
        if (wanted[i + 1].revents != 0) Read(peers_[i]);
      }
      changed_.notify_all();
    }
  }

  void Read(Peer& peer) {
    char bytes[4096];
    const ssize_t count = recv(peer.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    peer.ended = count <= 0;
    if (count > 0) peer.unread.append(bytes, count);
    while (const std::optional<News> news = TakeNews(peer.unread)) {
      if (FailureOf(news->group).ok()) Take(*news);
    }
  }

  void Take(const News& news) {
    failures_.push_back(news);
    for (auto it = groups_.lower_bound(news.group); it != groups_.end() && it->first.starts_with(news.group);) {
      it->second(news.why);
      it = groups_.erase(it);
    }
    changed_.notify_all();
  }

  Status FailureOf(const std::string& group) const {
    for (const News& news : failures_) {
      if (group.starts_with(news.group)) return news.why;
    }
    return OkStatus();
  }

  const int rank_;
  OwnedFd listener_;
  const std::string address_;
  OwnedFd wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;                // By rank; `ended` changes on the listening thread alone.
  std::map<std::string, OnAbort> groups_;  // That have not failed.
  std::vector<News> failures_;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<AbortLine>> AbortLine::Listen(int rank, int size, const std::string& host_address) {
  ASSIGN_OR_RETURN(const auto own, Resolve(host_address, "0"));
  OwnedFd listener(socket(own.first.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return SystemError("socket");
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&own.first), own.second) != 0) return SystemError("bind");
  if (listen(listener.get(), size) != 0) return SystemError("listen");
  OwnedFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (wake.get() < 0) return SystemError("eventfd");
  ASSIGN_OR_RETURN(std::string address, AddressOf(listener.get()));
  return std::make_unique<SocketLine>(rank, size, std::move(listener), std::move(address), std::move(wake));
}

}  // namespace moeplan::executor
