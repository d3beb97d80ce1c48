#include "planner/service/worker_pool.h"

#include <utility>

#include "models/check.h"

namespace moeplan::service {

WorkerPool::WorkerPool(int workers, int queue_capacity) : limit_(workers + queue_capacity) {
  MOEPLAN_CHECK(workers >= 1 && queue_capacity >= 0);
  for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { Work(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  workers_.clear();  // Joins, while the rest of the pool still stands.
}

bool WorkerPool::TrySubmit(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    if (in_progress_ == limit_ || closing_) return false;
    ++in_progress_;
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

int WorkerPool::in_progress() const {
  const std::scoped_lock lock(mutex_);
  return in_progress_;
}

void WorkerPool::Work() {
  while (const std::function<void()> job = Next()) {
    job();
    const std::scoped_lock lock(mutex_);
    --in_progress_;
  }
}

std::function<void()> WorkerPool::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
  if (waiting_.empty()) return nullptr;
  std::function<void()> job = std::move(waiting_.front());
  waiting_.pop_front();
  return job;
}

}  // namespace moeplan::service
