#include "tests/e2e/moeplan_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

namespace moeplan::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::filesystem::path TemporaryPath(const char* kind) {
  std::string path = (std::filesystem::temp_directory_path() / (std::string("moeplan-") + kind + "-XXXXXX")).string();
  const int fd = mkstemp(path.data());
  if (fd < 0) std::abort();
  close(fd);
  return path;
}

// True once `condition` holds; false when it does not within the limit.
template <typename Condition>
bool Await(Condition condition, std::chrono::seconds limit) {
  for (const auto deadline = Clock::now() + limit; Clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// What the group in `line` matches of what it prints; empty: nothing in time.
std::string AwaitPrinted(const Process& server, const char* line) {
  std::smatch match;
  std::string text;
  const auto printed = [&] { return std::regex_search(text = server.PrintedSoFar(), match, std::regex(line)); };
  return Await(printed, std::chrono::seconds(10)) ? match[1].str() : "";
}

}  // namespace

Process Process::Start(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
                       const Confinement& confinement) {
  return StartProgram(MOEPLAN_PROGRAM, arguments, environment, confinement);
}

Process Process::StartProgram(const std::string& program, const std::vector<std::string>& arguments,
                              const std::map<std::string, std::string>& environment, const Confinement& confinement) {
  Process process;
  process.out_path_ = TemporaryPath("out");
  process.err_path_ = TemporaryPath("err");
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  process.pid_ = fork();
  if (process.pid_ == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(confinement.out >= 0 ? confinement.out : open(process.out_path_.c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
    dup2(open(process.err_path_.c_str(), O_WRONLY | O_TRUNC), STDERR_FILENO);
    if (confinement.out == Confinement::kClosed) close(STDOUT_FILENO);
    if (confinement.address_space_bytes > 0) {
      const rlimit limit = {.rlim_cur = confinement.address_space_bytes, .rlim_max = confinement.address_space_bytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    execvp(program.c_str(), words.data());
    _exit(127);
  }
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_path_(std::move(other.out_path_)),
      err_path_(std::move(other.err_path_)) {
  other.out_path_.clear();
  other.err_path_.clear();
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  if (!out_path_.empty()) std::filesystem::remove(out_path_, ignored);
  if (!err_path_.empty()) std::filesystem::remove(err_path_, ignored);
}

Outcome Process::Finish(std::chrono::seconds limit) {
  int status = 0;
  const bool ended = Await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit);
  if (!ended) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  return {.exit_code = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = ReadFile(out_path_),
          .err = ReadFile(err_path_)};
}

std::vector<pid_t> Process::Children() const {
  std::vector<pid_t> children;
  std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
  for (pid_t child = 0; file >> child;) {
    if (Alive(child)) children.push_back(child);
  }
  return children;
}

std::vector<pid_t> Process::AwaitChildren(size_t count, std::chrono::seconds limit) const {
  std::vector<pid_t> children;
  const bool there = Await([&] { return (children = Children()).size() >= count; }, limit);
  return there ? children : std::vector<pid_t>();
}

std::string Process::PrintedSoFar() const { return ReadFile(out_path_); }
std::string Process::ErrorsSoFar() const { return ReadFile(err_path_); }

std::string AwaitAddress(const Process& server) { return AwaitPrinted(server, "gRPC on ([0-9.:]+),"); }
std::string AwaitHttpAddress(const Process& server) { return AwaitPrinted(server, "HTTP on https?://([0-9.:]+)\n"); }

Outcome RunMoeplan(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment) {
  return Process::Start(arguments, environment).Finish();
}

bool Alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  // A process that ends meanwhile makes reading an error, which the stream keeps to itself.
  std::string text;
  std::getline(file, text, '\0');
  const size_t end_of_name = text.rfind(')');
  return end_of_name != std::string::npos && text.size() > end_of_name + 2 && text[end_of_name + 2] != 'Z';
}

TemporaryFolder::TemporaryFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "moeplan-test-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) std::abort();
  path_ = path;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}
std::string TemporaryFolder::Write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name) << text;
  return *this / name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace moeplan::testing
