#include "tests/e2e/usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace moeplan::testing {
namespace {

std::string FileOf(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

}  // namespace

double PeakMemoryBytes(pid_t pid) {
  std::ifstream status(FileOf(pid, "status"));
  for (std::string word; status >> word;) {
    double kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  ADD_FAILURE() << "process " << pid << " says nothing of its memory; it has ended";
  return std::numeric_limits<double>::infinity();
}

double ProcessorTimeS(pid_t pid) {
  std::ifstream file(FileOf(pid, "stat"));
  std::string line;
  std::getline(file, line);
  // The second field is the program's name in brackets and may hold spaces; user and system time are the 14th and 15th.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  if (fields >> user >> system) return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  ADD_FAILURE() << "process " << pid << " says nothing of its time; it has ended";
  return std::numeric_limits<double>::infinity();
}

}  // namespace moeplan::testing
