#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "agent/libraries/library_kernels.h"
#include "agent/rank_session.h"
#include "cli/command.h"
#include "executor/backends.h"

namespace moeplan::cli {

void AddRankWorker(CLI::App& app, Invocation& invocation) {
  struct Options {
    int rank = 0;
    std::string address, python;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = AddCommand(app, invocation, "rank-worker", "One rank of a job", "", [options] {
    if (!options->python.empty()) setenv(agent::kPythonVariable, options->python.c_str(), /*overwrite=*/1);
    const std::unique_ptr<agent::RankSession> session =
        agent::RankSession::Make(options->address, executor::FindBackend);
    agent::ServeRank(*session, STDIN_FILENO, STDOUT_FILENO);
    return OkStatus();
  });
  command->group("");  // Not in the help.
  command->add_option("--rank", options->rank)->required();
  command->add_option("--address", options->address)->required();
  command->add_option("--python", options->python);
}

}  // namespace moeplan::cli
