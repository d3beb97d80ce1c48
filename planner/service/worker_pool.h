// A few threads that run jobs in the order in which they came, and a queue that is never longer than it may be.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moeplan::service {

class WorkerPool {
 public:
  // At least one worker. Up to workers + queue_capacity jobs are taken before one is done.
  WorkerPool(int workers, int queue_capacity);

  // Runs what was taken to its end.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and the job is dropped, when there is no room. Never waits. Jobs must not throw. Any thread.
  [[nodiscard]] bool TrySubmit(std::function<void()> job);

  // Jobs taken and not yet done.
  int in_progress() const;

 private:
  void Work();
  // The next job; empty when there is none and none will come.
  std::function<void()> Next();

  const int limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // Guarded by mutex_, as are the next two.
  int in_progress_ = 0;
  bool closing_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace moeplan::service
