#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cluster_option.h"
#include "cli/command.h"
#include "executor/launch/job.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

using executor::Job;

struct LaunchOptions {
  CLI::Option* local_option = nullptr;
  int local_ranks = 0, port = 0;
  std::string emulated_file, hostfile, simulated_file;
  bool launched = false;
  std::vector<std::string> command;
};

// Says whether execvp would find a program of that name.
bool IsProgram(const std::string& word) {
  if (word.find('/') != std::string::npos) return access(word.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(StrCat(folder.empty() ? "." : folder, "/", word).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Status CheckOptions(const LaunchOptions& options) {
  if (options.launched || !options.simulated_file.empty()) {
    return InvalidInput(
        StrCat(options.launched ? "--launched" : "--simulated",
               ": found beside launch, which starts processes of its own on real machines, expected one "
               "of --local, --emulated, --hostfile"));
  }
  const int given = (options.local_option->count() > 0) + !options.emulated_file.empty() + !options.hostfile.empty();
  if (given != 1) {
    return InvalidInput(StrCat("found ", given, " of --local, --emulated, --hostfile, expected exactly one"));
  }
  if (options.port < 0 || options.port > 65535) {
    return InvalidInput(StrCat("--port: found ", options.port, ", expected 0 to 65535"));
  }
  if (options.command.empty()) {
    return InvalidInput("COMMAND: found nothing, expected what every rank runs, behind --");
  }
  if (options.hostfile.empty() && !IsProgram(options.command[0])) {
    return InvalidInput(StrCat("COMMAND: found ", options.command[0], ", expected a program that this machine has"));
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Job>> Start(const LaunchOptions& options) {
  const executor::JobCommand command = {.words = options.command, .master_port = options.port};
  if (options.local_option->count() > 0) return Job::Local(options.local_ranks, command);
  if (!options.hostfile.empty()) {
    ASSIGN_OR_RETURN(const std::vector<executor::Host> hosts, ReadHosts(options.hostfile));
    return Job::OnHosts(hosts, command);
  }
  ASSIGN_OR_RETURN(const executor::EmulatedNodes nodes, ReadEmulatedNodes(options.emulated_file));
  StatusOr<std::unique_ptr<Job>> job = Job::Emulated(nodes, command);
  if (!job.ok() && job.status().code() == StatusCode::kInvalidInput) return job.status().Within(options.emulated_file);
  return job;
}

// The first signal that asked us to stop, and how many did. A terminal that is closed asks, too.
volatile std::sig_atomic_t first_signal = 0, signals = 0;

void NoteSignal(int signal) {
  if (signals == 0) first_signal = signal;
  if (signals < 2) signals = signals + 1;
}

void NoteSignals() {
  struct sigaction action {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaction(signal, &action, nullptr);
}

// Gives the signal that ranks are to get: the first that came, or SIGKILL once a second did. A job whose output nobody
// reads any more is stopped, too.
int SignalToPass() {
  if (signals > 1) return SIGKILL;
  return std::ferror(stdout) != 0 ? SIGTERM : first_signal;
}

// Prints a line of a rank behind its number. Every line is flushed, so that logs keep up when they go into a pipe.
void PrintLine(int rank, bool is_error, std::string_view line) {
  std::FILE* const into = is_error ? stderr : stdout;
  std::fprintf(into, "[%d] %.*s\n", rank, static_cast<int>(line.size()), line.data());
  std::fflush(into);
}

StatusOr<int> Launch(const LaunchOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  NoteSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<Job> job, Start(options));
  return job->Run(PrintLine, SignalToPass);
}

}  // namespace

void AddLaunch(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "launch", "Runs a command as every rank of a job, with torchrun's variables",
                 "moeplan launch --emulated deploy/examples/emulated.json -- python3 train.py --steps 200",
                 [options, &invocation] {
                   const StatusOr<int> code = Launch(*options);
                   if (code.ok()) invocation.exit_code = *code;
                   return code.status();
                 });
  CLI::Option_group* group = command->add_option_group("CLUSTER", "Where the ranks run; exactly one of");
  options->local_option = group->add_option("--local", options->local_ranks, "N ranks on this machine, as one node");
  group->add_option("--emulated", options->emulated_file,
                    "EMULATED.json: nodes in network namespaces of this machine (needs root)");
  group->add_option("--hostfile", options->hostfile, "Open MPI hostfile: ranks over ssh");
  // Other commands have these; here they are told why not.
  group->add_option("--simulated", options->simulated_file)->group("");
  group->add_flag("--launched", options->launched)->group("");
  command->add_option("--port", options->port, "MASTER_PORT; default: a free one, or 29500 on other machines");
  command->add_option("COMMAND", options->command, "What every rank runs, behind --");
}

}  // namespace moeplan::cli
