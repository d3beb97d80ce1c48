// Ranks on a simulated cluster: the sim backend (design.md §7).
//
// The ranks of a job live in one process, each driven by a thread of its own, of which one runs at a time
// (rank_turns.h). What ranks do between waits takes no simulated time; Device::Synchronize and Communicator::Split
// wait, and while all ranks wait the clock of the network goes on. The same job on the same cluster gives the same
// times, always.
//
// Devices, groups and errors are those of the virtual clock (executor/virtual/virtual_clock.h), but that Split blocks,
// and that time is what sim_machine.h says. Rank i is GPU i. There are no deadlines: what can never end is an error, of
// code kDeadlineExceeded, at once.
//
// With data, rows are really computed and moved, by the kernels of executor/host: for small layers. Without, memory is
// address space, and routing is balanced (sim_kernels.h): for the layers of large models on thousands of GPUs.
#pragma once

#include <functional>
#include <memory>

#include "executor/rank_backend.h"
#include "executor/sim/network.h"
#include "models/status.h"

namespace moeplan::executor {

struct SimOptions {
  int ranks = 0;  // 0: as many as GPUs.
  bool data = true;
};

class SimWorld {
 public:
  // `network` is borrowed, and serves one world at a time.
  static StatusOr<std::unique_ptr<SimWorld>> Make(Network& network, const SimOptions& options);
  virtual ~SimWorld() = default;

  virtual int ranks() const = 0;

  // Gives ranks to threads of Run: Join and Connect may be called anew for a job that has failed, by every rank as
  // often. A rank's Join outlives the rank, and both the thread's program.
  virtual const RankBackend& backend() const = 0;

  // Runs `program` for every rank, each on a thread of its own, and returns when all have. On the thread that made the
  // network.
  virtual Status Run(const std::function<void(int rank)>& program) = 0;
  // From within `program`: calls `function`, which waits for something beyond the simulation, and touches nothing of
  // it. Every rank steps outside as often.
  virtual void Outside(int rank, const std::function<void()>& function) = 0;
};

}  // namespace moeplan::executor
