#include "executor/launch/child_launch.h"
#include "executor/launch/ssh.h"
#include "models/text.h"

namespace moeplan::executor {
std::string ShellQuoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> SshCommand(const Host& host, const std::string& remote) {
  return {"ssh", "-o", "BatchMode=yes", "--", host.name, remote};
}

std::string BareName(const Host& host) { return host.name.substr(host.name.find('@') + 1); }

StatusOr<std::unique_ptr<Launch>> LaunchHosts(const std::vector<Host>& hosts, const RankProgram& program) {
  auto launch = std::make_unique<ChildLaunch>(static_cast<int>(hosts.size()), hosts.front().slots);
  int rank = 0;
  for (const Host& host : hosts) {
    for (int slot = 0; slot < host.slots; ++slot, ++rank) {
      std::string remote;
      for (const std::string& word : CommandOf(program, rank, BareName(host))) remote += ShellQuoted(word) + " ";
      ASSIGN_OR_RETURN(Child child, Child::Start(SshCommand(host, remote), {}));
      launch->Add(std::move(child));
    }
  }
  return launch;
}

}  // namespace moeplan::executor
