#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "agent/libraries/library_kernels.h"
#include "agent/node_agent.h"
#include "agent/simulated_fleet.h"
#include "cli/cluster_option.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/planner_option.h"
#include "cli/stop_signals.h"
#include "executor/backends.h"
#include "executor/owned_fd.h"
#include "models/text.h"
#include "moeplan/v1/cluster.pb.h"
#include "planner/client/agent_connection.h"
#include "proto/convert/simulated_cluster.h"
#include "proto/host_port.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct AgentOptions {
  PlannerOption planner;
  std::string cluster = "default", backend = "host", address, name, simulated_file, deadline = "30s", python;
  int nodes = 1, node_rank = 0, ranks = 0;
};

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unnamed";
  return name;
}

// Makes 32 random hexadecimal digits, so that nobody guesses them.
std::string RandomInstance() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof text, "%08x%08x%08x%08x", random(), random(), random(), random());
  return text;
}

// Finds the address of this machine that packets to the planner leave from: others can reach it where the planner can.
StatusOr<std::string> AddressTowards(const HostPort& planner) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;  // To connect a datagram socket sends nothing.
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(planner.host.c_str(), StrCat(planner.port).c_str(), &hints, &found);
  if (problem != 0) {
    return Unavailable(StrCat("--planner: cannot resolve ", planner.host, " to an IPv4 address: ",
                              gai_strerror(problem), "; --address says which of this machine others can reach"));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const executor::OwnedFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in self{};
  socklen_t length = sizeof self;
  if (connect(fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&self), &length) != 0) {
    return Unavailable(StrCat("--planner: no route to ", planner.host, "; check the network, or give --address"));
  }
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &self.sin_addr, text, sizeof text);
  return std::string(text);
}

// Returns the rate of the interface with this address, as the kernel knows it; 0: it does not.
double NicBytesPerS(const std::string& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(all, &freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof text);
    if (address != text) continue;
    double megabits_per_s = 0;
    std::ifstream(StrCat("/sys/class/net/", one->ifa_name, "/speed")) >> megabits_per_s;
    return megabits_per_s > 0 ? megabits_per_s * 1e6 / 8 : 0;
  }
  return 0;
}

// Counts the cards that the driver shows.
int CountCards() {
  int cards = 0;
  while (std::filesystem::exists(StrCat("/dev/nvidia", cards))) ++cards;
  return cards;
}

StatusOr<int> RanksOf(const AgentOptions& options) {
  if (options.ranks > 0) return options.ranks;
  if (options.backend != "cuda") return DefaultThreads();
  const int cards = CountCards();
  if (cards == 0) return Unavailable("--backend cuda: found no card on this machine; give --ranks, or --backend host");
  return cards;
}

v1::AgentRegistration RegistrationOf(const AgentOptions& options) {
  v1::AgentRegistration registration;
  registration.set_name(options.name.empty() ? HostName() : options.name);
  registration.set_version(MOEPLAN_VERSION);
  registration.set_instance(RandomInstance());
  registration.set_cluster(options.cluster);
  (*registration.mutable_hardware())["processors"] = StrCat(DefaultThreads());
  return registration;
}

// Makes one agent hold all nodes of a simulated cluster. Called before any thread is started.
Status HoldSimulated(const AgentOptions& options, agent::NodeAgentOptions& agent) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::SimulatedCluster>(options.simulated_file));
  const StatusOr<SimulatedCluster> cluster = SimulatedClusterFromProto(message);
  if (!cluster.ok()) return cluster.status().Within(options.simulated_file);
  ASSIGN_OR_RETURN(agent.kept_ranks, agent::LaunchSimulatedRanks(*cluster, /*values=*/false));
  v1::AgentRegistration& registration = agent.registration;
  registration.set_nodes(cluster->nodes);
  registration.set_held_nodes(cluster->nodes);
  registration.set_ranks_per_node(cluster->gpus_per_node);
  registration.set_backend("sim");
  registration.set_collective_deadline_s(agent::kSimulatedDeadlineS);
  for (const auto& [name, value] : agent::SimulatedProvenance(*cluster))
    (*registration.mutable_hardware())[name] = value;
  return OkStatus();
}

Status HoldNode(const AgentOptions& options, const HostPort& planner, agent::NodeAgentOptions& agent) {
  RETURN_IF_ERROR(executor::FindBackend(options.backend).status());
  ASSIGN_OR_RETURN(const int ranks, RanksOf(options));
  std::string address = options.address;
  if (address.empty()) {
    ASSIGN_OR_RETURN(address, AddressTowards(planner));
  }
  ASSIGN_OR_RETURN(const double deadline_s, ParseSeconds("--deadline", options.deadline));
  v1::AgentRegistration& registration = agent.registration;
  registration.set_nodes(options.nodes);
  registration.set_node(options.node_rank);
  registration.set_held_nodes(1);
  registration.set_ranks_per_node(ranks);
  registration.set_backend(options.backend);
  registration.set_collective_deadline_s(deadline_s);
  registration.set_nic_bytes_per_s(NicBytesPerS(address));
  agent.launch = [ranks, address] { return executor::LaunchLocal(ranks, OwnRankProgram(), address); };
  return OkStatus();
}

Status Run(const AgentOptions& options) {
  constexpr double kConnectDeadlineS = 5;
  ASSIGN_OR_RETURN(const client::ConnectOptions connect, options.planner.Connect(kConnectDeadlineS));
  ASSIGN_OR_RETURN(const HostPort planner, ParseHostPort(connect.address, "--planner"));
  const sigset_t signals = BlockStopSignals();
  const executor::OwnedFd stop(signalfd(-1, &signals, SFD_CLOEXEC));
  agent::NodeAgentOptions agent = {.connect = client::ConnectAgentWith(connect),
                                   .planner = connect.address,
                                   .registration = RegistrationOf(options),
                                   .stop_fd = stop.get(),
                                   .seed = std::random_device()(),
                                   .log = [](std::string_view line) {
                                     std::fprintf(stderr, "moeplan agent: %.*s\n", static_cast<int>(line.size()),
                                                  line.data());
                                   }};
  if (!options.python.empty()) setenv(agent::kPythonVariable, options.python.c_str(), /*overwrite=*/1);
  RETURN_IF_ERROR(options.simulated_file.empty() ? HoldNode(options, planner, agent) : HoldSimulated(options, agent));
  return agent::RunNodeAgent(std::move(agent));
}

}  // namespace

void AddAgent(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<AgentOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "agent", "Hold the ranks of this machine for a planner, until told to stop",
                 "moeplan agent --planner planner:7070 --cluster west --nodes 4 --node-rank 2",
                 [options] { return Run(*options); });
  options->planner.Add(*command, *command);
  command->add_option("--cluster", options->cluster, "Name of the cluster that this node belongs to")
      ->capture_default_str();
  CLI::Option* nodes = command->add_option("--nodes", options->nodes, "Nodes of the cluster")->capture_default_str();
  CLI::Option* node_rank =
      command->add_option("--node-rank", options->node_rank, "Which of them this is, from 0 on")->capture_default_str();
  CLI::Option* ranks =
      command->add_option("--ranks", options->ranks, "Ranks on this node (default: one for each card, or processor)")
          ->check(CLI::PositiveNumber);
  CLI::Option* backend = command
                             ->add_option("--backend", options->backend,
                                          "What the ranks run on: host (processors) or cuda (GPUs and NCCL)")
                             ->capture_default_str();
  CLI::Option* address =
      command->add_option("--address", options->address,
                          "Address of this machine that other nodes can reach (default: the one towards the planner)");
  CLI::Option* deadline = command
                              ->add_option("--deadline", options->deadline,
                                           "How long one collective may take before its peers are given up")
                              ->capture_default_str();
  CLI::Option* python =
      command->add_option("--python", options->python,
                          "The job's Python, whose PyTorch is measured (default: $MOEPLAN_PYTHON, else python3)");
  command->add_option("--name", options->name, "Name of this agent (default: the host's)");
  CLI::Option* simulated = command->add_option("--simulated", options->simulated_file,
                                               "CLUSTER.json: hold all nodes of a cluster that is simulated");
  for (CLI::Option* other : {nodes, node_rank, ranks, backend, address, deadline, python}) simulated->excludes(other);
}

}  // namespace moeplan::cli
