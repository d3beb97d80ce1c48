// Starts the ranks of a job and keeps the byte streams to them (frames.h).
//
// A Launch owns what it started: when it goes, so do the rank processes, namespaces and connections, also after an
// error, and also when this process is killed (the kernel then ends the ranks; namespaces have no names and vanish with
// their last user). Driven by one thread, the one that launched: ranks end with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::executor {

class Launch {
 public:
  virtual ~Launch() = default;

  virtual int nodes() const = 0;
  virtual int ranks_per_node() const = 0;
  int ranks() const { return nodes() * ranks_per_node(); }

  // Descriptors of rank `rank`'s streams.
  virtual int WriteFd(int rank) const = 0;
  virtual int ReadFd(int rank) const = 0;
  // How the rank ended, such as "killed by signal 9"; empty while it runs or where it is no child of ours.
  virtual std::string EndOf(int rank) = 0;
  // The process of the rank, 0 where it is no child of ours.
  virtual int ProcessOf(int rank) const = 0;
};

// The command that a rank process runs: `program` followed by `arguments`, then "--rank R --address ADDRESS", with the
// streams on standard input and output.
struct RankProgram {
  std::string program;
  std::vector<std::string> arguments;
};

// `ranks` processes on this machine, as one node. Each rank of a local or emulated job stays on one processor, as it
// has one GPU: left to the scheduler, three of four ranks may share one of two for a while. Where ranks outnumber
// processors, neighbours share one: they wait for each other the most, and so keep in step.
// `address`: of this machine, where ranks on others are to reach them.
StatusOr<std::unique_ptr<Launch>> LaunchLocal(int ranks, const RankProgram& program,
                                              const std::string& address = "127.0.0.1");

// Nodes of ranks on this machine, every rank in a network namespace of its own with one shaped veth pair as its NIC;
// the ranks of a node also share an unshaped link. kPermissionDenied without the right to make namespaces.
struct EmulatedNodes {
  int nodes = 0;
  int ranks_per_node = 0;
  double nic_bytes_per_s = 0;  // In and out.
};
StatusOr<std::unique_ptr<Launch>> LaunchEmulated(const EmulatedNodes& cluster, const RankProgram& program);

// Ranks over ssh, `slots` on each host (Open MPI's hostfile: "host slots=N" lines, # comments). Every host must have
// the same program and the same number of slots.
struct Host {
  std::string name;
  int slots = 1;
};
StatusOr<std::vector<Host>> ParseHostfile(const std::string& text, const std::string& file_name);
StatusOr<std::unique_ptr<Launch>> LaunchHosts(const std::vector<Host>& hosts, const RankProgram& program);

// What torchrun, Slurm or Open MPI said about this process.
struct LaunchedRank {
  int rank = 0;
  int ranks = 1;
  int ranks_per_node = 1;
  std::string master_address;
  int master_port = 0;
};
// `get` reads the environment (nullptr: not set). The error names the variables that were looked for.
StatusOr<LaunchedRank> ReadLaunchedRank(const char* (*get)(const char*));

// Rank 0: waits for every other rank to connect; the Launch then reaches all ranks, rank 0 itself by `own_fd` (one end
// of a socket pair whose other end serves rank 0).
StatusOr<std::unique_ptr<Launch>> GatherLaunched(const LaunchedRank& self, int own_fd, double timeout_s);
// Other ranks: a socket connected to rank 0, and the own address that others can reach.
struct JoinedLaunch {
  int fd = -1;
  std::string address;
};
StatusOr<JoinedLaunch> JoinLaunched(const LaunchedRank& self, double timeout_s);

}  // namespace moeplan::executor
