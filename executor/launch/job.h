// Any command as the ranks of a job: a training script with torchrun's variables, on this machine, on emulated nodes or
// over ssh.
//
// Every rank leads a process group of its own, which is killed with the job: nothing that it started is left behind,
// not even after an error. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "executor/launch/launch.h"
#include "models/status.h"

namespace moeplan::executor {

struct JobCommand {
  std::vector<std::string> words;  // At least one.
  int master_port = 0;             // 0: a port that is free on this machine, or, where rank 0 is elsewhere, 29500.
};

class Job {
 public:
  // A line that a rank printed, or what it printed last without an end of line; without that end.
  using Sink = std::function<void(int rank, bool is_error, std::string_view line)>;

  // Each starts all ranks with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; our
  // environment passes through. Where it does not say, OMP_NUM_THREADS is 1, and ranks of this machine keep memory that
  // they free (MALLOC_TRIM_THRESHOLD_ 2^32, MALLOC_MMAP_MAX_ 0). Standard input is empty. Ranks of this machine share
  // its processors in equal parts.
  static StatusOr<std::unique_ptr<Job>> Local(int ranks, const JobCommand& command);
  // Also GLOO_SOCKET_IFNAME: the interface of the rank's NIC.
  static StatusOr<std::unique_ptr<Job>> Emulated(const EmulatedNodes& cluster, const JobCommand& command);
  // In our working directory there. Variables that describe our session or machine (HOME, SSH_*, ...) stay here.
  static StatusOr<std::unique_ptr<Job>> OnHosts(const std::vector<Host>& hosts, const JobCommand& command);

  virtual ~Job() = default;

  // Passes on what ranks print until all have ended. As soon as one fails, or `stop` gives a signal, the others get
  // that signal (SIGTERM after a failure and on other hosts), and after five seconds SIGKILL. `stop` is asked ten times
  // a second at least; where it gives SIGKILL, that comes at once. Returns 0; the exit code of the first rank that
  // failed, 128 + n where signal n ended it; or 128 + the signal that `stop` gave.
  virtual int Run(const Sink& sink, const std::function<int()>& stop) = 0;
};

}  // namespace moeplan::executor
