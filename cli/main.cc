// The `moeplan` command: asks the other rooms, prints, and turns a Status into an exit code.
#include <csignal>
#include <cstdio>

#include "cli/command.h"
#include "cli/extensions.h"

namespace moeplan::cli {
namespace {

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // A lost reader is an error of the write, not the end of the process.
  CLI::App app("Measures a cluster, plans MoE layers on it, and runs the plans.", "moeplan");
  app.set_version_flag("--version", "moeplan " MOEPLAN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\n`moeplan COMMAND --help` has an example of each. Exit codes: 0 done, 1 the answer is no, 2 wrong input, 3 "
      "anything else.\n");
  Invocation invocation;
  AddCalibrate(app, invocation);
  AddFit(app, invocation);
  AddImport(app, invocation);
  AddProfile(app, invocation);
  AddPlan(app, invocation);
  AddGraph(app, invocation);
  AddRun(app, invocation);
  AddValidate(app, invocation);
  AddReproduce(app, invocation);
  AddWhatIf(app, invocation);
  AddCall(app, invocation);
  AddToken(app, invocation);
  AddServe(app, invocation);
  AddAgent(app, invocation);
  AddLayout(app, invocation);
  AddLater(app, invocation);
  AddRankWorker(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version.
    std::fprintf(stderr, "moeplan: %s\n", WhatIsWrong(app, error).c_str());
    return 2;
  }
  Status status;
  for (const std::string& path : invocation.extensions) {
    if (status.ok()) status = LoadExtension(path);
  }
  if (status.ok()) status = invocation.run();
  if (std::fflush(stdout) != 0) {
    std::fputs("moeplan: standard output cannot be written\n", stderr);
    return 3;
  }
  if (!status.ok()) std::fprintf(stderr, "moeplan: %s\n", status.message().c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace moeplan::cli

// What CLI11 throws while commands are added is a mistake of ours and may end the process.
int main(int argc, char** argv) { return moeplan::cli::Main(argc, argv); }  // NOLINT(bugprone-exception-escape)
