#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "executor/launch/child.h"
#include "executor/launch/frames.h"
#include "executor/launch/launch.h"
#include "models/seconds_from_now.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<int> Number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

struct Launcher {
  const char* name;
  const char *rank, *ranks, *local_ranks;
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"},
};

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

Status Resolve(const std::string& host, int port, AddressList& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), StrCat(port).c_str(), &hints, &addresses.first);
  return error == 0 ? OkStatus() : Unavailable(StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
}

std::string LocalAddressOf(int fd) {
  sockaddr_in self{};
  socklen_t length = sizeof self;
  char text[INET_ADDRSTRLEN] = "";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&self), &length) == 0)
    inet_ntop(AF_INET, &self.sin_addr, text, sizeof text);
  return text;
}

StatusOr<OwnedFd> ListenOn(const LaunchedRank& self) {
  AddressList addresses;
  RETURN_IF_ERROR(Resolve(self.master_address, self.master_port, addresses));
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0 || listen(fd.get(), self.ranks) != 0) {
    return Unavailable(StrCat("cannot listen on ", self.master_address, ":", self.master_port, ": ",
                              std::strerror(errno), "; set MOEPLAN_PORT to a free port on all ranks"));
  }
  return fd;
}

class SocketLaunch final : public Launch {
 public:
  SocketLaunch(const LaunchedRank& self, int own_fd) : self_(self), sockets_(self.ranks) {
    sockets_[0] = OwnedFd(own_fd);
  }

  void Add(int rank, OwnedFd socket) { sockets_[rank] = std::move(socket); }
  bool Has(int rank) const { return sockets_[rank].get() >= 0; }

  int nodes() const override { return self_.ranks / self_.ranks_per_node; }
  int ranks_per_node() const override { return self_.ranks_per_node; }
  int WriteFd(int rank) const override { return sockets_[rank].get(); }
  int ReadFd(int rank) const override { return sockets_[rank].get(); }
  std::string EndOf(int) override { return ""; }
  int ProcessOf(int) const override { return 0; }

 private:
  LaunchedRank self_;
  std::vector<OwnedFd> sockets_;
};

// The connections of a job start with this word, so that a stray client is told apart.
constexpr char kGreeting[] = "moeplan rank ";

Status AcceptRank(int listening, SocketLaunch& launch, int ranks, Clock::time_point deadline) {
  OwnedFd socket(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.get() < 0) return Unavailable(StrCat("accept: ", std::strerror(errno)));
  ASSIGN_OR_RETURN(const std::string greeting, ReadFrame(socket.get(), std::min(deadline, SecondsFromNow(5))));
  const auto rank = greeting.starts_with(kGreeting) ? Number(greeting.c_str() + std::strlen(kGreeting)) : std::nullopt;
  if (!rank || *rank < 1 || *rank >= ranks || launch.Has(*rank))
    return InvalidInput("a connection that is no rank of this job");
  launch.Add(*rank, std::move(socket));
  return OkStatus();
}

}  // namespace

StatusOr<LaunchedRank> ReadLaunchedRank(const char* (*get)(const char*)) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = Number(get(launcher.rank)), ranks = Number(get(launcher.ranks));
    if (!rank || !ranks) continue;
    LaunchedRank self{
        .rank = *rank, .ranks = *ranks, .ranks_per_node = Number(get(launcher.local_ranks)).value_or(*ranks)};
    if (self.ranks < 1 || self.rank < 0 || self.rank >= self.ranks || self.ranks_per_node < 1 ||
        self.ranks % self.ranks_per_node != 0) {
      return InvalidInput(StrCat(launcher.rank, ", ", launcher.ranks, ", ", launcher.local_ranks, ": found ", self.rank,
                                 ", ", self.ranks, ", ", self.ranks_per_node,
                                 ", expected a rank below the ranks, and alike nodes"));
    }
    const char* address = get("MASTER_ADDR");
    if (address == nullptr && self.ranks_per_node != self.ranks) {
      return InvalidInput(StrCat("MASTER_ADDR: not set, expected the host of rank 0, since ", launcher.name,
                                 " started ranks on ", self.ranks / self.ranks_per_node, " nodes"));
    }
    self.master_address = address == nullptr ? "127.0.0.1" : address;
    // torchrun's own store listens on MASTER_PORT.
    self.master_port = Number(get("MOEPLAN_PORT")).value_or(Number(get("MASTER_PORT")).value_or(29500) + 1);
    return self;
  }
  return InvalidInput(
      "--launched: found no rank in the environment, expected RANK and WORLD_SIZE (torchrun), SLURM_PROCID and "
      "SLURM_NTASKS (srun), or OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (mpirun)");
}

StatusOr<std::unique_ptr<Launch>> GatherLaunched(const LaunchedRank& self, int own_fd, double timeout_s) {
  auto launch = std::make_unique<SocketLaunch>(self, own_fd);
  ASSIGN_OR_RETURN(const OwnedFd listening, ListenOn(self));
  const Clock::time_point deadline = SecondsFromNow(timeout_s);
  for (int missing = self.ranks - 1; missing > 0;) {
    pollfd wanted{.fd = listening.get(), .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(&wanted, 1, static_cast<int>(left)) == 0) {
      std::string absent;
      for (int rank = 1; rank < self.ranks; ++rank) {
        if (!launch->Has(rank)) absent += StrCat(absent.empty() ? "" : ", ", rank);
      }
      return DeadlineExceeded(StrCat("no connection within ", timeout_s, " s from rank ", absent));
    }
    if (AcceptRank(listening.get(), *launch, self.ranks, deadline).ok()) --missing;
  }
  return launch;
}

StatusOr<JoinedLaunch> JoinLaunched(const LaunchedRank& self, double timeout_s) {
  AddressList addresses;
  RETURN_IF_ERROR(Resolve(self.master_address, self.master_port, addresses));
  for (const Clock::time_point deadline = SecondsFromNow(timeout_s);;) {
    OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) == 0) {
      RETURN_IF_ERROR(WriteFrame(fd.get(), StrCat(kGreeting, self.rank)));
      std::string address = LocalAddressOf(fd.get());
      return JoinedLaunch{fd.release(), std::move(address)};
    }
    if (Clock::now() > deadline) {
      return Unavailable(
          StrCat("rank 0 does not answer at ", self.master_address, ":", self.master_port, ": ", std::strerror(errno)));
    }
    // Rank 0 may start later than this one.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace moeplan::executor
