#include "executor/launch/job.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "executor/launch/child.h"
#include "executor/launch/emulated_network.h"
#include "executor/launch/ssh.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{5};
constexpr int kPollMs = 50;
constexpr int kUsualPort = 29500;  // torchrun's.
constexpr size_t kLongestLine = size_t{1} << 16;

// The pipe of one of a rank's streams, cut into lines.
class LineReader {
 public:
  LineReader(int fd, int rank, bool is_error) : fd_(fd), rank_(rank), is_error_(is_error) {
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }

  int fd() const { return open_ ? fd_ : -1; }
  bool open() const { return open_; }

  // Passes on what is there now, at most as much as a pipe holds, so that a rank that prints without end holds up
  // nobody.
  void Read(const Job::Sink& sink) {
    std::array<char, 16384> buffer;
    for (int i = 0; open_ && i < 4; ++i) {
      const ssize_t count = read(fd_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) {
        if (!line_.empty()) sink(rank_, is_error_, line_);
        open_ = false;
        return;
      }
      Take({buffer.data(), static_cast<size_t>(count)}, sink);
    }
  }

  // The same once nobody writes any more, and the line that has no end.
  void ReadLast(const Job::Sink& sink) {
    for (int i = 0; open_ && i < 8; ++i) Read(sink);
    if (open_ && !line_.empty()) sink(rank_, is_error_, line_);
    open_ = false;
  }

 private:
  void Take(std::string_view text, const Job::Sink& sink) {
    for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      line_ += text.substr(0, end);
      sink(rank_, is_error_, line_);
      line_.clear();
    }
    line_ += text;
    if (line_.size() < kLongestLine) return;
    sink(rank_, is_error_, line_);
    line_.clear();
  }

  int fd_, rank_;
  bool is_error_, open_ = true;
  std::string line_;
};

Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Unavailable(StrCat("ssh does not read its command: ", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(count));
  }
  return OkStatus();
}

class ChildJob final : public Job {
 public:
  // `remote`: children are connections to other hosts (RemoteScript).
  explicit ChildJob(bool remote = false) : remote_(remote) {}
  void Keep(EmulatedNetwork network) { network_ = std::move(network); }

  void Add(Child child) {
    const int rank = static_cast<int>(children_.size());
    readers_.emplace_back(child.read_fd(), rank, /*is_error=*/false);
    readers_.emplace_back(child.error_fd(), rank, /*is_error=*/true);
    children_.push_back(std::move(child));
  }

  int Run(const Sink& sink, const std::function<int()>& stop) override {
    int code = 0;
    std::optional<Clock::time_point> killed_at;
    // Ranks that ended may have left the ends of their pipes to processes of their own.
    while (!AllEnded()) {
      ReadAll(sink);
      const int signal = stop();
      for (Child& child : children_) {
        if (!child.End().empty() && code == 0) code = child.code();
      }
      if (signal != 0 && code == 0) code = 128 + signal;  // A SIGKILL that comes later changes nothing.
      if (code != 0 && !killed_at) {
        killed_at = Clock::now() + kGrace;
        Signal(signal != 0 ? signal : SIGTERM);
      }
      if (signal == SIGKILL || (killed_at && Clock::now() > *killed_at)) Signal(SIGKILL);
    }
    for (LineReader& reader : readers_) reader.ReadLast(sink);
    return code;
  }

 private:
  bool AllEnded() {
    return std::ranges::all_of(children_, [](Child& child) { return !child.End().empty(); });
  }

  void Signal(int signal) {
    for (Child& child : children_) {
      if (!child.End().empty()) continue;
      if (remote_ && signal != SIGKILL) {
        (void)WriteAll(child.write_fd(), "TERM\n");  // A shell's background command would not listen to SIGINT.
      } else {
        child.Signal(signal);
      }
    }
  }

  // Waits a little where there is nothing.
  void ReadAll(const Sink& sink) {
    std::vector<pollfd> wanted;
    for (const LineReader& reader : readers_) wanted.push_back({.fd = reader.fd(), .events = POLLIN, .revents = 0});
    if (poll(wanted.data(), wanted.size(), kPollMs) <= 0) return;
    for (size_t i = 0; i < readers_.size(); ++i) {
      if (wanted[i].revents != 0) readers_[i].Read(sink);
    }
  }

  const bool remote_;
  std::optional<EmulatedNetwork> network_;
  std::vector<Child> children_;
  std::vector<LineReader> readers_;
};

struct RankPlaceOfJob {
  int rank, ranks, local_rank, local_ranks;
  std::string master_address;
  int master_port;
  bool on_this_machine;
};

std::vector<std::string> VariablesOf(const RankPlaceOfJob& place) {
  std::vector<std::string> variables = {StrCat("RANK=", place.rank),
                                        StrCat("WORLD_SIZE=", place.ranks),
                                        StrCat("LOCAL_RANK=", place.local_rank),
                                        StrCat("LOCAL_WORLD_SIZE=", place.local_ranks),
                                        StrCat("MASTER_ADDR=", place.master_address),
                                        StrCat("MASTER_PORT=", place.master_port)};
  const auto set_unless_given = [&](const std::string& name, std::string_view value) {
    if (std::getenv(name.c_str()) == nullptr) variables.push_back(StrCat(name, "=", value));
  };
  set_unless_given("OMP_NUM_THREADS", "1");
  if (place.on_this_machine) {
    // Ranks on processors stand in for ranks on GPUs, whose allocators keep what a step frees for the next one. The C
    // library would give it back, and faults of its pages can take longer than what a step computes
    // (docs/decisions/0053).
    set_unless_given("MALLOC_TRIM_THRESHOLD_", "4294967296");
    set_unless_given("MALLOC_MMAP_MAX_", "0");
  }
  return variables;
}

StatusOr<int> FreePort() {
  const OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Unavailable(StrCat("found no free port on 127.0.0.1: ", std::strerror(errno)));
  }
  return ntohs(address.sin_port);
}

StatusOr<Child> StartHere(const JobCommand& command, std::vector<std::string> variables, ChildPlace place) {
  place.whole_part = place.leads_group = true;
  ASSIGN_OR_RETURN(Child child,
                   Child::Start(command.words, place, {.variables = std::move(variables), .errors_apart = true}));
  child.CloseInput();
  return child;
}

// Says whether a variable describes this session or machine rather than what is to be run.
bool DescribesOurSession(std::string_view variable) {
  // The last ones a shell lets nobody set.
  constexpr std::string_view kNames[] = {
      "DISPLAY", "HOME", "HOSTNAME", "LOGNAME",  "MAIL",          "OLDPWD", "PWD",  "SHELL",     "SHLVL", "TERM",
      "TMPDIR",  "USER", "_",        "BASHOPTS", "BASH_VERSINFO", "EUID",   "PPID", "SHELLOPTS", "UID"};
  constexpr std::string_view kPrefixes[] = {"BASH_FUNC_", "DBUS_", "SSH_", "XDG_"};
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whether a shell takes it for the name of a variable; others would end it, or be run.
bool IsShellName(std::string_view name) {
  const auto is_letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, is_part);
}

// Gives the script that the shell of another host reads on its standard input, so that no list of processes shows our
// variables. It runs the command until that input ends, with the connection or with us.
std::string RemoteScript(const JobCommand& command, const std::vector<std::string>& variables) {
  std::error_code error;
  std::string script = StrCat("cd ", ShellQuoted(std::filesystem::current_path(error).string()), " || exit 127\n");
  const auto export_it = [&](std::string_view variable) {
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos || !IsShellName(variable.substr(0, equals))) return;
    script +=
        StrCat("export ", variable.substr(0, equals), "=", ShellQuoted(std::string(variable.substr(equals + 1))), "\n");
  };
  for (char** own = environ; *own != nullptr; ++own) {
    if (!DescribesOurSession(*own)) export_it(*own);
  }
  for (const std::string& variable : variables) export_it(variable);
  std::string words;
  for (const std::string& word : command.words) words += ShellQuoted(word) + " ";
  // The command leads a group of its own, so that all of it gets the signals that come by name.
  return StrCat(script, "exec 3<&0\nsetsid ", words, "< /dev/null 3<&- &\nchild=$!\n",
                "(while read -r signal; do kill -s \"$signal\" -- \"-$child\"; done <&3; kill -s KILL -- \"-$child\" "
                "|| kill -s KILL \"$child\") ",
                "> /dev/null 2>&1 &\nwatcher=$!\nwait \"$child\"\ncode=$?\nkill \"$watcher\" 2> /dev/null\n",
                "kill -s KILL -- \"-$child\" 2> /dev/null\nexit \"$code\"\n");
}

}  // namespace

StatusOr<std::unique_ptr<Job>> Job::Local(int ranks, const JobCommand& command) {
  if (ranks < 1) return InvalidInput(StrCat("--local: found ", ranks, ", expected at least 1 rank"));
  int port = command.master_port;
  if (port == 0) {
    ASSIGN_OR_RETURN(port, FreePort());
  }
  auto job = std::make_unique<ChildJob>();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::string> variables = VariablesOf({.rank = rank,
                                                            .ranks = ranks,
                                                            .local_rank = rank,
                                                            .local_ranks = ranks,
                                                            .master_address = "127.0.0.1",
                                                            .master_port = port,
                                                            .on_this_machine = true});
    ASSIGN_OR_RETURN(Child child, StartHere(command, variables, {.part = rank, .parts = ranks}));
    job->Add(std::move(child));
  }
  return job;
}

StatusOr<std::unique_ptr<Job>> Job::Emulated(const EmulatedNodes& cluster, const JobCommand& command) {
  ASSIGN_OR_RETURN(EmulatedNetwork network, MakeEmulatedNetwork(cluster));
  const int ranks = static_cast<int>(network.ranks.size());
  const int port = command.master_port == 0 ? kUsualPort : command.master_port;
  auto job = std::make_unique<ChildJob>();
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> variables = VariablesOf({.rank = rank,
                                                      .ranks = ranks,
                                                      .local_rank = rank % cluster.ranks_per_node,
                                                      .local_ranks = cluster.ranks_per_node,
                                                      .master_address = EmulatedAddress(0),
                                                      .master_port = port,
                                                      .on_this_machine = true});
    variables.emplace_back("GLOO_SOCKET_IFNAME=nic");
    ASSIGN_OR_RETURN(Child child,
                     StartHere(command, std::move(variables),
                               {.network_namespace = network.ranks[rank].get(), .part = rank, .parts = ranks}));
    job->Add(std::move(child));
  }
  job->Keep(std::move(network));
  return job;
}

StatusOr<std::unique_ptr<Job>> Job::OnHosts(const std::vector<Host>& hosts, const JobCommand& command) {
  const int slots = hosts.front().slots, ranks = slots * static_cast<int>(hosts.size());
  const int port = command.master_port == 0 ? kUsualPort : command.master_port;
  auto job = std::make_unique<ChildJob>(/*remote=*/true);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::string> variables = VariablesOf({.rank = rank,
                                                            .ranks = ranks,
                                                            .local_rank = rank % slots,
                                                            .local_ranks = slots,
                                                            .master_address = BareName(hosts.front()),
                                                            .master_port = port,
                                                            .on_this_machine = false});
    ASSIGN_OR_RETURN(Child child, Child::Start(SshCommand(hosts[rank / slots], "exec sh -s"), {.leads_group = true},
                                               {.errors_apart = true}));
    RETURN_IF_ERROR(WriteAll(child.write_fd(), RemoteScript(command, variables)));
    job->Add(std::move(child));
  }
  return job;
}

}  // namespace moeplan::executor
