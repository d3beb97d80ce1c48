#include "agent/step_runner.h"

namespace moeplan::agent {

StatusOr<std::unique_ptr<StepRunner>> StepRunner::Prepare(StepTasks tasks, StepOperations operations,
                                                          executor::Rank& rank) {
  std::unique_ptr<StepRunner> runner(new StepRunner(std::move(tasks), std::move(operations), rank));
  RETURN_IF_ERROR(runner->MakeOperations());
  return runner;
}

Status StepRunner::MakeOperations() {
  for (size_t i = 0; i < tasks_.tasks.size(); ++i) {
    ASSIGN_OR_RETURN(std::vector<Operation*> operations, operations_.Of(tasks_.graph.tasks[i], tasks_.tasks[i]));
    queued_.push_back(std::move(operations));
    started_.push_back(rank_.device().MakeEvent());
    ended_.push_back(rank_.device().MakeEvent());
  }
  return OkStatus();
}

void StepRunner::Enqueue() {
  executor::Device& device = rank_.device();
  executor::RankStreams& streams = rank_.runtime().streams();
  for (size_t i = 0; i < tasks_.tasks.size(); ++i) {
    const Task& task = tasks_.graph.tasks[i];
    executor::Stream& stream = streams[task.stream];
    for (const TaskId before : task.dependencies) {
      if (tasks_.graph.tasks[before].stream != task.stream) device.Wait(stream, *ended_[before]);
    }
    device.Label(stream, task.name);
    device.Record(*started_[i], stream);
    for (Operation* const operation : queued_[i]) operation->Enqueue(stream);
    device.Record(*ended_[i], stream);
  }
}

Timeline StepRunner::LastTimeline() const {
  const executor::Device& device = rank_.device();
  Timeline timeline;
  for (size_t i = 0; i < tasks_.tasks.size(); ++i) {
    const Task& task = tasks_.graph.tasks[i];
    timeline.push_back({.task = task.name,
                        .kind = task.kind,
                        .stream = task.stream,
                        .chunk = task.chunk,
                        .start_s = device.TimeS(*started_[i]),
                        .end_s = device.TimeS(*ended_[i])});
  }
  return timeline;
}

}  // namespace moeplan::agent
