// The `moeplan` command asks the other rooms, prints, and turns a Status into an exit code.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "cli/command.h"
#include "cli/extensions.h"
#include "cli/output.h"

namespace moeplan::cli {
namespace {

[[noreturn]] void EndWith3(std::string_view message) {
  (void)!write(STDERR_FILENO, message.data(), message.size());
  _exit(3);
}

// Ends the process when an exception was caught nowhere, on whichever thread. Memory or a thread that the machine
// refuses is an error like any other, with a message and exit code 3; everything else is a mistake of ours and aborts.
[[noreturn]] void OnTerminate() {
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    EndWith3("moeplan: out of memory; free some, or raise the limit (ulimit -v)\n");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)
      EndWith3(
          "moeplan: the machine refuses a thread; raise the limit of processes (ulimit -u) or memory (ulimit -v)\n");
  } catch (...) {
  }
  std::abort();
}

// Has all threads share one heap where address space is limited. Each would reserve 64 MiB for a heap of its own, and
// where it gets none, glibc asks the kernel for every allocation by itself: seconds become minutes.
void ShareHeapWhereSpaceIsLimited() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

Status Run(const Invocation& invocation) {
  for (const std::string& path : invocation.extensions) RETURN_IF_ERROR(LoadExtension(path));
  return invocation.run();
}

// Prints what went wrong, if anything did, and returns the exit code.
int End(const Status& status) {
  // An answer that nobody got is none, whatever it was.
  const Status written = FlushOutput();
  const Status& end = written.ok() ? status : written;
  if (!end.ok()) std::fprintf(stderr, "moeplan: %s\n", end.message().c_str());
  return ExitCode(end);
}

int Main(int argc, char** argv) {
  std::set_terminate(OnTerminate);
  ShareHeapWhereSpaceIsLimited();
  ReserveStandardStreams();
  std::signal(SIGPIPE, SIG_IGN);  // A lost reader is an error of the write, not the end of the process.
  // A rank multiplies on one thread. OpenBLAS would start one for each processor, each with a buffer of 128 MiB of
  // address space, and try for ever to get them where the process may not have as much.
  // The command that `launch` starts keeps the number of threads that its user chose.
  if (argc < 2 || std::string_view(argv[1]) != "launch") setenv("OPENBLAS_NUM_THREADS", "1", /*replace=*/1);
  CLI::App app("Measures a cluster, plans MoE layers on it, and runs the plans.", "moeplan");
  app.set_version_flag("--version", "moeplan " MOEPLAN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\n`moeplan COMMAND --help` has an example of each. Exit codes: 0 done, 1 the answer is no, 2 wrong input, 3 "
      "anything else.\n");
  Invocation invocation;
  AddAdvise(app, invocation);
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
  AddLaunch(app, invocation);
  AddLayout(app, invocation);
  AddStep(app, invocation);
  AddExport(app, invocation);
  AddCheck(app, invocation);
  AddRankWorker(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      std::fprintf(stderr, "moeplan: %s\n", WhatIsWrong(app, error).c_str());
      return 2;
    }
    app.exit(error);  // --help, --version.
    return End(OkStatus());
  }
  const int end = End(Run(invocation));
  return end == 0 ? invocation.exit_code : end;
}

}  // namespace
}  // namespace moeplan::cli

// What CLI11 throws while commands are added is a mistake of ours and may end the process.
int main(int argc, char** argv) { return moeplan::cli::Main(argc, argv); }  // NOLINT(bugprone-exception-escape)
