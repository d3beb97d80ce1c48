#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "executor/launch/child_launch.h"
#include "executor/launch/emulated_network.h"
#include "models/text.h"

namespace moeplan::executor {

std::string EmulatedAddress(int rank) { return StrCat("10.77.", rank / 250, ".", rank % 250 + 1); }

namespace {

constexpr int kMaxEmulatedRanks = 64;
// Jumbo frames: a NIC takes no processor from the experts, and here each packet does (docs/decisions/0009).
constexpr int kNicMtu = 9000;
constexpr int kLanMtu = 65535;  // Like loopback.

// Little data may stand in the queue before a shaped link: what a finished collective has left there delays the ready
// signals of the next one, which a measurement one by one does not see. Sockets hold more, so that a rank kept off its
// processor for a time slice neither starves the link nor closes its window.
constexpr std::pair<const char*, const char*> kSettings[] = {
    {"/proc/sys/net/ipv4/tcp_wmem", "4096 262144 524288"},
    {"/proc/sys/net/ipv4/tcp_rmem", "4096 524288 524288"},
    {"/proc/sys/net/ipv4/tcp_limit_output_bytes", "32768"},
    {"/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0"},
};

void WriteSetting(const char* path, const char* value) {
  const OwnedFd fd(open(path, O_WRONLY | O_CLOEXEC));
  // Absent on some kernels; shaping works without.
  if (fd.get() >= 0) (void)!write(fd.get(), value, std::strlen(value));
}

// A namespace without a name: it lives as long as a descriptor or a process does.
StatusOr<OwnedFd> MakeNetworkNamespace() {
  OwnedFd fd;
  int error = 0;
  // A thread of its own: unshare moves the thread that calls it.
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      error = errno;
      return;
    }
    for (const auto& [path, value] : kSettings) WriteSetting(path, value);
    fd = OwnedFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) error = errno;
  }).join();
  if (error == EPERM) {
    return PermissionDenied(
        "--emulated makes network namespaces, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); run as "
        "root, or use --local");
  }
  if (error != 0) return Unavailable(StrCat("cannot make a network namespace: ", std::strerror(error)));
  return fd;
}

std::string PathOf(const OwnedFd& fd) { return StrCat("/proc/", static_cast<int>(getpid()), "/fd/", fd.get()); }

// A small token bucket, of one frame at least: a full one lets the first bytes after a pause pass for nothing, which
// would make messages measured one by one faster than the same messages in a row. The queue holds what the senders'
// small socket buffers put into it.
std::string Shape(const std::string& interface, double bytes_per_s) {
  constexpr double kFrameBytes = kNicMtu + 14;  // With the Ethernet header.
  const double burst_bytes = std::max(kFrameBytes, bytes_per_s * 1.5e-4);
  return StrCat("qdisc add dev ", interface, " root tbf rate ", std::llround(bytes_per_s * 8), "bit burst ",
                std::llround(burst_bytes), " limit 4194304\n");
}

// The wires: every rank's NIC ends on one switch, and the ranks of a node share a second, unshaped one.
std::string FabricCommands(const EmulatedNodes& cluster, const std::vector<OwnedFd>& ranks) {
  std::string commands = "link set lo up\nlink add switch type bridge\nlink set switch up\n";
  for (int node = 0; node < cluster.nodes; ++node) {
    commands += StrCat("link add node", node, " type bridge\nlink set node", node, " up\n");
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto wire = [&](const std::string& end, const std::string& far_end, const std::string& bridge, int mtu) {
      commands += StrCat("link add ", end, " mtu ", mtu, " type veth peer name ", far_end, " mtu ", mtu, " netns ",
                         PathOf(ranks[rank]), "\nlink set ", end, " master ", bridge, " up\n");
    };
    wire(StrCat("port", rank), "nic", "switch", kNicMtu);
    wire(StrCat("lan", rank), "lan", StrCat("node", rank / cluster.ranks_per_node), kLanMtu);
  }
  return commands;
}

std::string RankCommands(const EmulatedNodes& cluster, int rank) {
  std::string commands =
      StrCat("link set lo up\nlink set nic up\nlink set lan up\naddr add ", EmulatedAddress(rank), "/16 dev nic\n");
  const int first = rank / cluster.ranks_per_node * cluster.ranks_per_node;
  for (int peer = first; peer < first + cluster.ranks_per_node; ++peer) {
    if (peer != rank)
      commands += StrCat("route add ", EmulatedAddress(peer), "/32 dev lan src ", EmulatedAddress(rank), "\n");
  }
  return commands;
}

Status Wire(const EmulatedNodes& cluster, const OwnedFd& fabric, const std::vector<OwnedFd>& ranks) {
  const auto ip = [](const std::string& commands, const OwnedFd& where) {
    return RunCommand({"ip", "-batch", "-"}, commands, where.get()).Within("--emulated");
  };
  const auto tc = [](const std::string& commands, const OwnedFd& where) {
    return RunCommand({"tc", "-batch", "-"}, commands, where.get()).Within("--emulated");
  };
  RETURN_IF_ERROR(ip(FabricCommands(cluster, ranks), fabric));
  std::string shapes;
  for (size_t rank = 0; rank < ranks.size(); ++rank) shapes += Shape(StrCat("port", rank), cluster.nic_bytes_per_s);
  RETURN_IF_ERROR(tc(shapes, fabric));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ip(RankCommands(cluster, static_cast<int>(rank)), ranks[rank]));
    RETURN_IF_ERROR(tc(Shape("nic", cluster.nic_bytes_per_s), ranks[rank]));
  }
  return OkStatus();
}

Status Check(const EmulatedNodes& cluster) {
  if (cluster.nodes < 1) return InvalidInput(StrCat("nodes: found ", cluster.nodes, ", expected at least 1"));
  if (cluster.ranks_per_node < 1)
    return InvalidInput(StrCat("gpusPerNode: found ", cluster.ranks_per_node, ", expected at least 1"));
  if (static_cast<double>(cluster.nodes) * cluster.ranks_per_node > kMaxEmulatedRanks) {
    return InvalidInput(StrCat("nodes·gpusPerNode: found ", cluster.nodes, "·", cluster.ranks_per_node,
                               ", expected at most ", kMaxEmulatedRanks, " emulated ranks"));
  }
  if (!(cluster.nic_bytes_per_s >= 1e4 && cluster.nic_bytes_per_s <= 1e10)) {
    return InvalidInput(StrCat("nic.bytesPerS: found ", cluster.nic_bytes_per_s, ", expected 1e4 to 1e10"));
  }
  return OkStatus();
}

}  // namespace

StatusOr<EmulatedNetwork> MakeEmulatedNetwork(const EmulatedNodes& cluster) {
  RETURN_IF_ERROR(Check(cluster));
  EmulatedNetwork network;
  ASSIGN_OR_RETURN(network.fabric, MakeNetworkNamespace());
  for (int rank = 0; rank < cluster.nodes * cluster.ranks_per_node; ++rank) {
    ASSIGN_OR_RETURN(network.ranks.emplace_back(), MakeNetworkNamespace());
  }
  RETURN_IF_ERROR(Wire(cluster, network.fabric, network.ranks));
  return network;
}

StatusOr<std::unique_ptr<Launch>> LaunchEmulated(const EmulatedNodes& cluster, const RankProgram& program) {
  ASSIGN_OR_RETURN(EmulatedNetwork network, MakeEmulatedNetwork(cluster));
  std::vector<Child> children;
  for (size_t rank = 0; rank < network.ranks.size(); ++rank) {
    const std::vector<std::string> command =
        CommandOf(program, static_cast<int>(rank), EmulatedAddress(static_cast<int>(rank)));
    ASSIGN_OR_RETURN(Child child, Child::Start(command, {.network_namespace = network.ranks[rank].get(),
                                                         .part = static_cast<int>(rank),
                                                         .parts = static_cast<int>(network.ranks.size())}));
    children.push_back(std::move(child));
  }
  network.ranks.push_back(std::move(network.fabric));
  auto launch = std::make_unique<ChildLaunch>(cluster.nodes, cluster.ranks_per_node, std::move(network.ranks));
  for (Child& child : children) launch->Add(std::move(child));
  return launch;
}

}  // namespace moeplan::executor
