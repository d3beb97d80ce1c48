#include "planner/service/worker_pool.h"

#include <utility>

#include "models/check.h"

namespace moeplan::service {

WorkerPool::WorkerPool(int workers, int queue_capacity)
    : limit_(workers + queue_capacity), running_(static_cast<size_t>(workers)) {
  MOEPLAN_CHECK(workers >= 1 && queue_capacity >= 0);
  for (size_t worker = 0; worker < running_.size(); ++worker) {
    workers_.emplace_back([this, worker] { Work(worker); });
  }
}

void WorkerPool::End() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  workers_.clear();  // Joins, while the rest of the pool still stands.
}

bool WorkerPool::TrySubmit(std::function<void()> job, JobName name) {
  {
    const std::scoped_lock lock(mutex_);
    if (in_progress_ == limit_ || closing_) return false;
    ++in_progress_;
    waiting_.push_back({.run = std::move(job), .name = std::move(name)});
  }
  changed_.notify_one();
  return true;
}

int WorkerPool::in_progress() const {
  const std::scoped_lock lock(mutex_);
  return in_progress_;
}

std::vector<WorkerPool::RunningJob> WorkerPool::running() const {
  const std::scoped_lock lock(mutex_);
  std::vector<RunningJob> jobs;
  for (const std::optional<RunningJob>& job : running_) {
    if (job) jobs.push_back(*job);
  }
  return jobs;
}

void WorkerPool::Work(size_t worker) {
  while (const std::function<void()> job = Next(worker)) {
    job();
    const std::scoped_lock lock(mutex_);
    running_[worker].reset();
    --in_progress_;
  }
}

std::function<void()> WorkerPool::Next(size_t worker) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
  if (waiting_.empty()) return nullptr;
  Job job = std::move(waiting_.front());
  waiting_.pop_front();
  running_[worker] = {.name = std::move(job.name), .began = std::chrono::steady_clock::now()};
  return std::move(job.run);
}

}  // namespace moeplan::service
