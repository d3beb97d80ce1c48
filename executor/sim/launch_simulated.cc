#include "executor/sim/launch_simulated.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "executor/launch/child.h"
#include "executor/launch/frames.h"
#include "executor/owned_fd.h"
#include "executor/sim/errors.h"
#include "executor/sim/network.h"

namespace moeplan::executor {
namespace {

// That who launches may open later.
constexpr rlim_t kOtherFiles = 256;

rlim_t OpenFiles() {
  std::error_code error;
  rlim_t count = 0;
  for (std::filesystem::directory_iterator files("/proc/self/fd", error), end; !error && files != end;
       files.increment(error)) {
    ++count;
  }
  return count;
}

Status AllowFiles(rlim_t files) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= files) return OkStatus();
  if (limit.rlim_max < files) return error::TooFewFiles(files, limit.rlim_max);
  limit.rlim_cur = files;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return error::TooFewFiles(files, limit.rlim_max);
  return OkStatus();
}

// Both ends of the stream of each rank.
struct Streams {
  std::vector<OwnedFd> ours, childs;
};

StatusOr<Streams> MakeStreams(int ranks) {
  RETURN_IF_ERROR(AllowFiles(OpenFiles() + 2 * static_cast<rlim_t>(ranks) + kOtherFiles));
  Streams streams;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Unavailable(StrCat("socketpair: ", std::strerror(errno)));
    }
    streams.ours.emplace_back(ends[0]);
    streams.childs.emplace_back(ends[1]);
  }
  return streams;
}

// The life of a rank in the child.
void Serve(SimWorld& world, int rank, int fd, const MakeRankHandler& make_handler) {
  const RankHandler handler = make_handler(rank, world.backend());
  std::optional<std::string> command, answer;
  const auto exchange = [&] {
    command.reset();
    if (answer && !WriteFrame(fd, *answer).ok()) return;
    StatusOr<std::string> frame = ReadFrame(fd, std::chrono::steady_clock::time_point::max());
    if (frame.ok()) command = *std::move(frame);
  };
  for (world.Outside(rank, exchange); command; world.Outside(rank, exchange)) answer = handler(*command);
}

Status Simulate(const SimulatedCluster& cluster, bool data, const std::vector<OwnedFd>& streams,
                const MakeRankHandler& make_handler) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Network> network, Network::Make(cluster));
  ASSIGN_OR_RETURN(const std::unique_ptr<SimWorld> world, SimWorld::Make(*network, {.data = data}));
  return world->Run([&](int rank) { Serve(*world, rank, streams[rank].get(), make_handler); });
}

[[noreturn]] void BecomeSimulator(pid_t parent, const SimulatedCluster& cluster, bool data, Streams streams,
                                  const MakeRankHandler& make_handler) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // The parent died before the line above.
  signal(SIGPIPE, SIG_IGN);
  streams.ours.clear();
  const Status status = Simulate(cluster, data, streams.childs, make_handler);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  _exit(status.ok() ? 0 : 1);
}

class SimulatedLaunch final : public Launch {
 public:
  SimulatedLaunch(const SimulatedCluster& cluster, pid_t child, std::vector<OwnedFd> streams)
      : nodes_(cluster.nodes), gpus_per_node_(cluster.gpus_per_node), child_(child), streams_(std::move(streams)) {}

  ~SimulatedLaunch() override {
    if (!end_.empty()) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  int nodes() const override { return nodes_; }
  int ranks_per_node() const override { return gpus_per_node_; }
  int WriteFd(int rank) const override { return streams_[rank].get(); }
  int ReadFd(int rank) const override { return streams_[rank].get(); }
  int ProcessOf(int /*rank*/) const override { return child_; }

  std::string EndOf(int /*rank*/) override {
    int status = 0;
    if (end_.empty() && waitpid(child_, &status, WNOHANG) == child_) end_ = EndText(status);
    return end_;
  }

 private:
  const int nodes_, gpus_per_node_;
  const pid_t child_;
  const std::vector<OwnedFd> streams_;
  std::string end_;
};

}  // namespace

StatusOr<std::unique_ptr<Launch>> LaunchSimulated(const SimulatedCluster& cluster, bool data,
                                                  const MakeRankHandler& make_handler) {
  RETURN_IF_ERROR(ValidateSimulatedCluster(cluster));
  ASSIGN_OR_RETURN(Streams streams, MakeStreams(Gpus(cluster)));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Unavailable(StrCat("fork: ", std::strerror(errno)));
  if (child == 0) BecomeSimulator(parent, cluster, data, std::move(streams), make_handler);
  return std::make_unique<SimulatedLaunch>(cluster, child, std::move(streams.ours));
}

}  // namespace moeplan::executor
