#include "cli/cluster_option.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "agent/libraries/library_kernels.h"
#include "agent/rank_session.h"
#include "agent/simulated_fleet.h"
#include "cli/extensions.h"
#include "cli/options.h"
#include "executor/backends.h"
#include "executor/launch/launch.h"
#include "models/text.h"
#include "moeplan/v1/cluster.pb.h"
#include "proto/convert/simulated_cluster.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

constexpr double kJoinS = 60;

executor::RankProgram RankWorkerOf(const std::string& program) {
  executor::RankProgram worker = {.program = program, .arguments = {"rank-worker"}};
  for (const std::string& path : LoadedExtensions()) {
    worker.arguments.insert(worker.arguments.end(), {"--extension", path});
  }
  // Ranks on other machines do not inherit our environment.
  if (const char* python = std::getenv(agent::kPythonVariable); python != nullptr && *python != '\0') {
    worker.arguments.insert(worker.arguments.end(), {"--python", python});
  }
  return worker;
}

StatusOr<std::unique_ptr<executor::Launch>> LaunchFromEmulatedFile(const std::string& path,
                                                                   agent::FleetOptions& options) {
  ASSIGN_OR_RETURN(const executor::EmulatedNodes nodes, ReadEmulatedNodes(path));
  options.provenance["nicBytesPerS"] = StrCat(nodes.nic_bytes_per_s);
  options.network_bytes_per_s = nodes.nodes > 1 ? nodes.nic_bytes_per_s : 0;
  StatusOr<std::unique_ptr<executor::Launch>> launch = executor::LaunchEmulated(nodes, OwnRankProgram());
  if (!launch.ok() && launch.status().code() == StatusCode::kInvalidInput) return launch.status().Within(path);
  return launch;
}

StatusOr<agent::Fleet> StartFromSimulatedFile(const std::string& path, const agent::SimulatedFleetOptions& options) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::SimulatedCluster>(path));
  const StatusOr<SimulatedCluster> cluster = SimulatedClusterFromProto(message);
  if (!cluster.ok()) return cluster.status().Within(path);
  return agent::StartSimulated(*cluster, options);
}

StatusOr<std::unique_ptr<executor::Launch>> LaunchFromHostfile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<executor::Host> hosts, ReadHosts(path));
  // On other hosts this program is wherever it is here.
  char own[4096];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own);
  if (length <= 0) return InternalError("cannot find the own program");
  return executor::LaunchHosts(hosts, RankWorkerOf(std::string(own, length)));
}

// The launch of a rank 0 that serves itself from a thread of its own.
class RankZeroLaunch final : public executor::Launch {
 public:
  RankZeroLaunch(std::jthread thread, std::unique_ptr<executor::Launch> all)
      : thread_(std::move(thread)), all_(std::move(all)) {}

  int nodes() const override { return all_->nodes(); }
  int ranks_per_node() const override { return all_->ranks_per_node(); }
  int WriteFd(int rank) const override { return all_->WriteFd(rank); }
  int ReadFd(int rank) const override { return all_->ReadFd(rank); }
  std::string EndOf(int rank) override { return all_->EndOf(rank); }
  int ProcessOf(int rank) const override { return all_->ProcessOf(rank); }

 private:
  std::jthread thread_;  // Ends when `all_` closes its stream, and goes after it.
  std::unique_ptr<executor::Launch> all_;
};

// Rank 0 serves itself over a socket pair.
StatusOr<std::unique_ptr<executor::Launch>> LaunchAsRankZero(const executor::LaunchedRank& self) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return InternalError("socketpair failed");
  std::jthread thread([fd = ends[1], address = self.master_address] {
    const std::unique_ptr<agent::RankSession> session = agent::RankSession::Make(address, executor::FindBackend);
    agent::ServeRank(*session, fd, fd);
    close(fd);
  });
  ASSIGN_OR_RETURN(std::unique_ptr<executor::Launch> all, executor::GatherLaunched(self, ends[0], kJoinS));
  return std::make_unique<RankZeroLaunch>(std::move(thread), std::move(all));
}

Status ServeAsLaunchedRank(const executor::LaunchedRank& self) {
  ASSIGN_OR_RETURN(const executor::JoinedLaunch joined, executor::JoinLaunched(self, kJoinS));
  const std::unique_ptr<agent::RankSession> session = agent::RankSession::Make(joined.address, executor::FindBackend);
  agent::ServeRank(*session, joined.fd, joined.fd);
  close(joined.fd);
  return OkStatus();
}

}  // namespace

StatusOr<executor::EmulatedNodes> ReadEmulatedNodes(const std::string& path) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::EmulatedCluster>(path));
  return executor::EmulatedNodes{.nodes = message.nodes(),
                                 .ranks_per_node = message.gpus_per_node(),
                                 .nic_bytes_per_s = message.nic().bytes_per_s()};
}

StatusOr<std::vector<executor::Host>> ReadHosts(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return executor::ParseHostfile(text, path);
}

executor::RankProgram OwnRankProgram() { return RankWorkerOf("/proc/self/exe"); }

void ClusterOption::Add(CLI::App& command) {
  CLI::Option_group* group = command.add_option_group("CLUSTER", "Where the ranks run; exactly one of");
  local_option_ = group->add_option("--local", local_ranks_, "N ranks on this machine, as one node");
  group->add_option("--emulated", emulated_file_,
                    "EMULATED.json: nodes in network namespaces of this machine (needs root)");
  group->add_option("--hostfile", hostfile_, "Open MPI hostfile: ranks over ssh");
  group->add_flag("--launched", launched_, "This process is one rank of torchrun, Slurm or Open MPI");
  group->add_option("--simulated", simulated_file_, "CLUSTER.json: a cluster that is simulated");
  command.add_option("--deadline", deadline_, "How long one collective may take before its peers are given up")
      ->capture_default_str();
  backend_option_ =
      command.add_option("--backend", backend_, "What the ranks run on: host (processors) or cuda (GPUs and NCCL)")
          ->capture_default_str();
}

bool ClusterOption::given() const {
  return local_option_->count() > 0 || !emulated_file_.empty() || !hostfile_.empty() || launched_ || simulated();
}

Status ClusterOption::CheckOne() const {
  const int given = (local_option_->count() > 0) + !emulated_file_.empty() + !hostfile_.empty() + launched_ +
                    !simulated_file_.empty();
  if (given == 1) return OkStatus();
  return InvalidInput(
      StrCat("found ", given, " of --local, --emulated, --hostfile, --launched, --simulated, expected exactly one"));
}

StatusOr<std::optional<agent::Fleet>> ClusterOption::Start(bool values) const {
  RETURN_IF_ERROR(CheckOne());
  if (simulated() && backend_option_->count() > 0) {
    return InvalidInput("--backend: found beside --simulated, whose ranks run on the simulator, expected one of them");
  }
  ASSIGN_OR_RETURN(const double deadline_s, ParseSeconds("--deadline", deadline_));
  if (simulated()) {
    ASSIGN_OR_RETURN(agent::Fleet fleet,
                     StartFromSimulatedFile(simulated_file_, {.values = values, .collective_deadline_s = deadline_s}));
    return std::optional<agent::Fleet>(std::move(fleet));
  }
  if (!launched_ && hostfile_.empty()) RETURN_IF_ERROR(executor::FindBackend(backend_).status());
  StatusOr<std::unique_ptr<executor::Launch>> launch = InternalError("no launch");
  agent::FleetOptions options = {.collective_deadline_s = deadline_s, .backend = backend_};
  std::string& launched_as = options.provenance["launch"];
  if (launched_) {
    launched_as = "launched";
    ASSIGN_OR_RETURN(const executor::LaunchedRank self,
                     executor::ReadLaunchedRank([](const char* name) -> const char* { return std::getenv(name); }));
    if (self.rank != 0) {
      RETURN_IF_ERROR(ServeAsLaunchedRank(self));
      return std::optional<agent::Fleet>();
    }
    launch = LaunchAsRankZero(self);
  } else if (!emulated_file_.empty()) {
    launched_as = "emulated";
    launch = LaunchFromEmulatedFile(emulated_file_, options);
  } else if (!hostfile_.empty()) {
    launched_as = "hostfile";
    launch = LaunchFromHostfile(hostfile_);
  } else {
    launched_as = "local";
    launch = executor::LaunchLocal(local_ranks_, OwnRankProgram());
  }
  if (!launch.ok()) return launch.status();
  ASSIGN_OR_RETURN(agent::Fleet fleet, agent::Fleet::Start(*std::move(launch), options));
  return std::optional<agent::Fleet>(std::move(fleet));
}

std::string ClusterOption::DefaultName(const agent::Fleet& fleet) const {
  const Cluster cluster = fleet.cluster();
  const std::string size = StrCat(cluster.nodes, "x", cluster.gpus_per_node);
  const std::string backend = backend_ == "host" ? "" : StrCat("-", backend_);
  if (local_option_->count() > 0) return StrCat("local-", size, backend);
  if (simulated()) {
    const std::string& name = fleet.provenance().at("simulatedCluster");
    return StrCat("simulated-", name.empty() ? size : name);
  }
  return StrCat(emulated_file_.empty() ? "cluster-" : "emulated-", size, backend);
}

}  // namespace moeplan::cli
