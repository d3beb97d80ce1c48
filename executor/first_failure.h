// What stopped a device: the first error of its streams. Any thread may call.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "models/status.h"

namespace moeplan::executor {

class FirstFailure {
 public:
  // Kept, and told to OnFailure's function on this thread, unless there was one before.
  void Set(const Status& why) {
    std::function<void(const Status&)> on_failure;
    {
      const std::lock_guard lock(mutex_);
      if (!first_.ok()) return;
      first_ = why;
      failed_ = true;
      on_failure = on_failure_;
    }
    if (on_failure) on_failure(why);
  }

  bool failed() const { return failed_; }

  Status first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

  void OnFailure(std::function<void(const Status&)> on_failure) {
    const std::lock_guard lock(mutex_);
    on_failure_ = std::move(on_failure);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status first_;
  std::function<void(const Status&)> on_failure_;
};

}  // namespace moeplan::executor
