#include "executor/launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "models/text.h"

namespace moeplan::executor {
namespace {

struct Pipe {
  OwnedFd read, write;
};

StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Unavailable(StrCat("pipe: ", std::strerror(errno)));
  return Pipe{OwnedFd(fds[0]), OwnedFd(fds[1])};
}

// In the child, between fork and exec: system calls only.
struct ChildSetup {
  int input, output, error;  // -1: inherited.
  ChildPlace place;
  pid_t parent;
};
// Best effort: a rank that may roam is slower to measure, not wrong.
void StayOn(const ChildPlace& place) {
  cpu_set_t usable, chosen;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  const int64_t count = CPU_COUNT(&usable);
  const int64_t first = place.part * count / place.parts, end = (place.part + 1) * count / place.parts;
  const int64_t last = place.whole_part && end > first ? end - 1 : first;
  CPU_ZERO(&chosen);
  for (int number = 0, place_in_usable = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &usable)) continue;
    if (place_in_usable >= first && place_in_usable <= last) CPU_SET(number, &chosen);
    ++place_in_usable;
  }
  sched_setaffinity(0, sizeof chosen, &chosen);
}

[[noreturn]] void BecomeCommand(const ChildSetup& setup, char* const* arguments, char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != setup.parent) _exit(126);  // The parent died before the line above.
  if (setup.place.leads_group) setpgid(0, 0);
  if (setup.place.network_namespace >= 0 && setns(setup.place.network_namespace, CLONE_NEWNET) != 0) _exit(125);
  if (setup.place.part >= 0) StayOn(setup.place);
  sigset_t none;  // What our parent waits for in its own way would be lost on the command.
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);  // We ignore it, and a command would inherit that.
  if (setup.input >= 0) dup2(setup.input, STDIN_FILENO);
  if (setup.output >= 0) dup2(setup.output, STDOUT_FILENO);
  if (setup.error >= 0) dup2(setup.error, STDERR_FILENO);
  execvpe(arguments[0], arguments, environment);
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  return pointers;
}

std::string_view NameOf(std::string_view variable) { return variable.substr(0, variable.find('=')); }

// Those given, and ours of other names.
std::vector<char*> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<char*> all = Pointers(variables);
  for (char** own = environ; *own != nullptr; ++own) {
    const auto replaced = [&](const std::string& given) { return NameOf(given) == NameOf(*own); };
    if (std::ranges::none_of(variables, replaced)) all.push_back(*own);
  }
  return all;
}

StatusOr<pid_t> Fork(const std::vector<std::string>& command, ChildSetup setup,
                     const std::vector<std::string>& variables = {}) {
  std::vector<char*> arguments = Pointers(command), environment = EnvironmentWith(variables);
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  setup.parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Unavailable(StrCat("cannot start ", command[0], ": ", std::strerror(errno)));
  if (pid == 0) BecomeCommand(setup, arguments.data(), environment.data());
  return pid;
}

}  // namespace

std::string EndText(int status) {
  if (WIFSIGNALED(status)) return StrCat("killed by signal ", WTERMSIG(status));
  return StrCat("exited with code ", WEXITSTATUS(status));
}

StatusOr<Child> Child::Start(const std::vector<std::string>& command, const ChildPlace& place,
                             const ChildSetting& setting) {
  ASSIGN_OR_RETURN(Pipe to_child, MakePipe());
  ASSIGN_OR_RETURN(Pipe from_child, MakePipe());
  Pipe errors;
  if (setting.errors_apart) {
    ASSIGN_OR_RETURN(errors, MakePipe());
  }
  Child child;
  ASSIGN_OR_RETURN(child.pid_, Fork(command,
                                    {.input = to_child.read.get(),
                                     .output = from_child.write.get(),
                                     .error = errors.write.get(),
                                     .place = place,
                                     .parent = 0},
                                    setting.variables));
  child.leads_group_ = place.leads_group;
  // Also here, so that the group is there whoever runs first.
  if (place.leads_group) setpgid(child.pid_, child.pid_);
  child.write_ = std::move(to_child.write);
  child.read_ = std::move(from_child.read);
  child.error_ = std::move(errors.read);
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      leads_group_(other.leads_group_),
      write_(std::move(other.write_)),
      read_(std::move(other.read_)),
      error_(std::move(other.error_)),
      end_(std::move(other.end_)),
      code_(other.code_) {}

Child::~Child() {
  if (pid_ <= 0 || !end_.empty()) return;
  if (leads_group_) kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Child::End() {
  siginfo_t ended{};
  if (!end_.empty() || waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != pid_)
    return end_;
  // While it is not reaped, its number is nobody else's, nor is that of its group.
  if (leads_group_) kill(-pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) {
    end_ = EndText(status);
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return end_;
}

void Child::Signal(int signal) const {
  if (end_.empty()) kill(leads_group_ ? -pid_ : pid_, signal);
}

Status RunCommand(const std::vector<std::string>& command, const std::string& input, int network_namespace) {
  ASSIGN_OR_RETURN(Pipe to_child, MakePipe());
  ASSIGN_OR_RETURN(Pipe errors, MakePipe());
  ASSIGN_OR_RETURN(const pid_t pid, Fork(command, {.input = to_child.read.get(),
                                                   .output = errors.write.get(),
                                                   .error = errors.write.get(),
                                                   .place = {.network_namespace = network_namespace},
                                                   .parent = 0}));
  to_child.read = OwnedFd();
  errors.write = OwnedFd();
  for (size_t written = 0; written < input.size();) {
    const ssize_t count = write(to_child.write.get(), input.data() + written, input.size() - written);
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  to_child.write = OwnedFd();
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(errors.read.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status == 0) return OkStatus();
  const bool absent = WIFEXITED(status) && WEXITSTATUS(status) == 127;
  if (absent) return Unavailable(StrCat(command[0], ": no such program on this machine"));
  return Unavailable(StrCat(command[0], " ", EndText(status), text.empty() ? "" : ": ", text));
}

}  // namespace moeplan::executor
