#include <signal.h>

#include "executor/launch/child.h"
#include "executor/launch/child_launch.h"
#include "models/text.h"

namespace moeplan::executor {

std::vector<std::string> CommandOf(const RankProgram& program, int rank, const std::string& address) {
  std::vector<std::string> command = {program.program};
  command.insert(command.end(), program.arguments.begin(), program.arguments.end());
  for (const std::string& word : {std::string("--rank"), StrCat(rank), std::string("--address"), address})
    command.push_back(word);
  return command;
}

StatusOr<std::unique_ptr<Launch>> LaunchLocal(int ranks, const RankProgram& program, const std::string& address) {
  if (ranks < 1) return InvalidInput(StrCat("--local: found ", ranks, ", expected at least 1 rank"));
  auto launch = std::make_unique<ChildLaunch>(1, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(Child child, Child::Start(CommandOf(program, rank, address), {.part = rank, .parts = ranks}));
    launch->Add(std::move(child));
  }
  return launch;
}

}  // namespace moeplan::executor
