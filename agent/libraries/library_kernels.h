// The kernels of the rest of a step, timed through the libraries that a job runs: a child process with the job's own
// Python, PyTorch and what is installed beside it (step_kernels.py, which says what stands for which kernel).
//
// The program is $MOEPLAN_PYTHON, else python3. The child ends with its owner. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/launch/child.h"
#include "models/cost/operation.h"
#include "models/status.h"

namespace moeplan::agent {

inline constexpr const char* kPythonVariable = "MOEPLAN_PYTHON";

// How long the program may take to import its libraries, which may lie on a file system of many nodes.
inline constexpr double kLibrariesStartWithinS = 120;
// And one answer, when each repeat may take so long: beside what is timed it chooses a library and fills tensors.
inline double LibraryAnswersWithinS(int runs, double run_within_s) { return (runs + 2) * run_within_s; }

// A request comes to times, and the libraries that they are of; or to the reason why there are none, such as that no
// library here has the kernel or that its tensors do not fit.
struct LibraryTimes {
  std::vector<double> times_s;
  std::string library;
  std::string left_out;
};

struct LibraryRequest {
  KernelKey key;  // IsOfTheRestOfAStep; validated.
  double size = 0;
  int warm_ups = 0, repeats = 1;
};

class LibraryKernels {
 public:
  // `device`: "cpu", or as PyTorch names a GPU. `run_within_s`: how long one repeat may take.
  // kUnimplemented: there is no such program, or it has no PyTorch; the message says how to give another.
  // kDeadlineExceeded, kUnavailable: it does not answer, or has ended.
  static StatusOr<std::unique_ptr<LibraryKernels>> Start(const std::string& device, double run_within_s);

  // kDeadlineExceeded, kUnavailable as above; the child is of no further use then.
  StatusOr<LibraryTimes> Time(const LibraryRequest& request);

 private:
  LibraryKernels(executor::Child child, double run_within_s) : child_(std::move(child)), run_within_s_(run_within_s) {}

  Status Send(const std::string& text);
  StatusOr<std::string> ReadLine(double within_s);
  Status HasEnded();

  executor::Child child_;
  double run_within_s_;
  std::string unread_;  // Behind the last line.
};

}  // namespace moeplan::agent
