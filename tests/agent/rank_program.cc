// One rank of a job, as fault_test.cc launches it: "... --rank R --address ADDRESS".
#include <unistd.h>

#include <csignal>

#include "agent/rank_session.h"
#include "executor/backends.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto session = moeplan::agent::RankSession::Make(argv[argc - 1], moeplan::executor::FindBackend);
  moeplan::agent::ServeRank(*session, STDIN_FILENO, STDOUT_FILENO);
  return 0;
}
