// Runs a training step's task graph on one rank: each task on its stream, behind what it waits for.
//
// Enqueue queues all tasks and returns; after Device::Synchronize, LastTimeline tells when each ran. Every rank makes
// and queues the same. One thread.
#pragma once

#include <memory>
#include <vector>

#include "agent/step_operations.h"
#include "executor/rank_backend.h"
#include "models/plan/step_tasks.h"
#include "models/timeline/task_timing.h"

namespace moeplan::agent {

class StepRunner {
 public:
  // Makes the operations of all tasks. Collective; blocks. The errors of StepOperations::Of.
  static StatusOr<std::unique_ptr<StepRunner>> Prepare(StepTasks tasks, StepOperations operations,
                                                       executor::Rank& rank);

  void Enqueue();
  // In graph order, seconds on the device's clock.
  Timeline LastTimeline() const;

 private:
  StepRunner(StepTasks tasks, StepOperations operations, executor::Rank& rank)
      : tasks_(std::move(tasks)), operations_(std::move(operations)), rank_(rank) {}
  Status MakeOperations();

  const StepTasks tasks_;
  StepOperations operations_;
  executor::Rank& rank_;
  std::vector<std::vector<Operation*>> queued_;  // Of each task.
  std::vector<std::unique_ptr<executor::Event>> started_, ended_;
};

}  // namespace moeplan::agent
