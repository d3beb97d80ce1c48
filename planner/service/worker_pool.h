// A few threads that run jobs in the order in which they came, and a queue that is never longer than it may be.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace moeplan::service {

// The call that a job works for, as messages name it.
struct JobName {
  std::string method, request_id;
};

class WorkerPool {
 public:
  // At least one worker. Up to workers + queue_capacity jobs are taken before one is done.
  WorkerPool(int workers, int queue_capacity);

  // Ends the pool.
  ~WorkerPool() { End(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and the job is dropped, when there is no room or the pool has ended. Never waits. Jobs must not throw. Any
  // thread.
  [[nodiscard]] bool TrySubmit(std::function<void()> job, JobName name = {});

  // Takes no more jobs and returns when those that were taken are done. One thread at a time.
  void End();

  // Jobs taken and not yet done. Any thread, as of the next.
  int in_progress() const;

  // The jobs that run now.
  struct RunningJob {
    JobName name;
    std::chrono::steady_clock::time_point began;
  };
  std::vector<RunningJob> running() const;

 private:
  struct Job {
    std::function<void()> run;
    JobName name;
  };

  // The loop of that worker's thread.
  void Work(size_t worker);
  // The next job, which `worker` runs from now on; empty when there is none and none will come.
  std::function<void()> Next(size_t worker);

  const int limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;                         // Guarded by mutex_, as are the next three.
  std::vector<std::optional<RunningJob>> running_;  // By worker.
  int in_progress_ = 0;
  bool closing_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace moeplan::service
