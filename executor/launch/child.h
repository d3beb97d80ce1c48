// Child processes, for executor/launch and agent/libraries.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "executor/owned_fd.h"
#include "models/status.h"

namespace moeplan::executor {

// Where a child runs.
struct ChildPlace {
  int network_namespace = -1;  // A descriptor of the namespace; -1: the own one.
  int part = -1, parts = 1;    // The first processor of one of so many equal parts of those that we may use; -1: any.
  bool whole_part = false;     // All processors of the part instead of its first.
  bool leads_group = false;    // It leads a process group, which ends with it: what it starts itself goes too.
};

// A ChildSetting says what a child gets beside the words of its command.
struct ChildSetting {
  std::vector<std::string> variables;  // "NAME=VALUE", beside ours and before those of the same name.
  bool errors_apart = false;           // Its standard error is a pipe, too; else ours.
};

// A child with pipes on its standard input and output; killed and reaped with its owner.
class Child {
 public:
  static StatusOr<Child> Start(const std::vector<std::string>& command, const ChildPlace& place,
                               const ChildSetting& setting = {});
  Child(Child&&) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  int write_fd() const { return write_.get(); }
  int read_fd() const { return read_.get(); }
  int error_fd() const { return error_.get(); }  // -1 unless errors are apart.
  // Its standard input ends.
  void CloseInput() { write_ = OwnedFd(); }
  // Empty while it runs. Where it led a group, that ends with it.
  std::string End();
  // Once it has ended: its exit code, or 128 and the signal that ended it.
  int code() const { return code_; }
  // To its process group where it leads one.
  void Signal(int signal) const;

 private:
  Child() = default;

  pid_t pid_ = -1;
  bool leads_group_ = false;
  OwnedFd write_, read_, error_;
  std::string end_;
  int code_ = 0;
};

// What a status of waitpid says, such as "killed by signal 9".
std::string EndText(int status);

// Runs a command to its end with `input` on its standard input; its standard error becomes part of the error.
Status RunCommand(const std::vector<std::string>& command, const std::string& input, int network_namespace);

}  // namespace moeplan::executor
