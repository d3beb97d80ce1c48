// Runs one program on every rank of a small job, whatever the backend: what tests that all backends must pass are
// written against. A new backend is one more JobRunner and one more line where a suite lists them.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "executor/virtual/virtual_clock.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::testing {

// Work that a rank queues, and what it looks at once its device has synchronized.
struct Round {
  std::function<void()> queue;
  std::function<void(const Status&)> check;
};

// Makes what a rank needs (it may Split) and returns its rounds, as many on every rank. Device and communicator live
// until all rounds of all ranks are over; what the rounds capture is dropped before.
using Program = std::function<std::vector<Round>(Rank)>;

class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // A rank's rounds one after the other; ranks side by side. A round is queued on every rank before it is checked on
  // any, or ranks have threads of their own.
  virtual void Run(int ranks, const Program& program) = 0;
};

// The rounds of one rank, on its own thread.
void RunRounds(const Rank& rank, const Program& program);

std::unique_ptr<JobRunner> MakeThreadRunner();
std::unique_ptr<JobRunner> MakeGlooRunner();

// Meshes between threads of this process that go through Gloo and this machine's loopback, as those of rank processes
// do. Connects when called on each rank's thread.
MakeMesh MakeGlooMeshes(int ranks);

// On a clock of its own for each Run.
std::unique_ptr<JobRunner> MakeVirtualRunner(executor::TaskTime task_time);

// A time that looks random for each rank and task, one in four of them 0, and is the same for the same seed.
executor::TaskTime ScatteredTimes(uint64_t seed);

// A backend as a test parameter.
struct Backend {
  std::string name;
  std::unique_ptr<JobRunner> (*make_runner)(uint64_t seed);
  // Whether nothing runs that was queued behind work that fails.
  bool stops_at_once = true;
};
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }
// Those that this program tests (backends.cc, or tests/gpu/cuda_backend.cc).
std::vector<Backend> Backends();

}  // namespace moeplan::testing
