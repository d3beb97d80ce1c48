#include "executor/launch/child_launch.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

std::string ShellQuoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

StatusOr<std::unique_ptr<Launch>> LaunchHosts(const std::vector<Host>& hosts, const RankProgram& program) {
  auto launch = std::make_unique<ChildLaunch>(static_cast<int>(hosts.size()), hosts.front().slots);
  int rank = 0;
  for (const Host& host : hosts) {
    for (int slot = 0; slot < host.slots; ++slot, ++rank) {
      const std::string bare_name = host.name.substr(host.name.find('@') + 1);
      std::string remote;
      for (const std::string& word : CommandOf(program, rank, bare_name)) remote += ShellQuoted(word) + " ";
      ASSIGN_OR_RETURN(Child child, Child::Start({"ssh", "-o", "BatchMode=yes", "--", host.name, remote}, {}));
      launch->Add(std::move(child));
    }
  }
  return launch;
}

}  // namespace moeplan::executor
