// Runs the built `moeplan` as a user's script would.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace moeplan::testing {

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal or by the time limit.
  std::string out, err;
};

// What a process gets that differs from what it would inherit.
struct Confinement {
  static constexpr int kClosed = -2;
  int out = -1;                    // Descriptor that its standard output is; -1: Outcome::out; kClosed: none.
  size_t address_space_bytes = 0;  // As `ulimit -v` sets, in bytes; 0: no limit.
};

// A running `moeplan`; killed with its owner.
class Process {
 public:
  // `environment` is added to that of the test.
  static Process Start(const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment = {}, const Confinement& confinement = {});
  // Another program, looked up as a shell does.
  static Process StartProgram(const std::string& program, const std::vector<std::string>& arguments,
                              const std::map<std::string, std::string>& environment = {},
                              const Confinement& confinement = {});
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  // Waits for its end and returns what it printed.
  Outcome Finish(std::chrono::seconds limit = std::chrono::seconds(120));
  // The processes it started that still run.
  std::vector<pid_t> Children() const;
  // Waits until it has that many children; empty when that does not happen in time.
  std::vector<pid_t> AwaitChildren(size_t count, std::chrono::seconds limit = std::chrono::seconds(30)) const;
  // What it has printed so far on standard output.
  std::string PrintedSoFar() const;
  // And on standard error.
  std::string ErrorsSoFar() const;

 private:
  Process() = default;

  pid_t pid_ = -1;
  std::filesystem::path out_path_, err_path_;
};

Outcome RunMoeplan(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment = {});

// The gRPC address that a `moeplan serve` says it listens on; empty when it does not in time.
std::string AwaitAddress(const Process& server);
// And its HTTP address, likewise.
std::string AwaitHttpAddress(const Process& server);

// Whether a process is there and no zombie.
bool Alive(pid_t pid);

// A folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string ReadFile(const std::string& path);

}  // namespace moeplan::testing
