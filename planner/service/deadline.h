// A moment after which work should stop, as a token.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

namespace moeplan::service {

// Asks its token to stop `limit_s` seconds after it was made; destruction waits for nothing.
class Deadline {
 public:
  explicit Deadline(double limit_s)
      : timer_([this, limit_s](const std::stop_token& no_longer) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any never;
          never.wait_for(lock, no_longer, std::chrono::duration<double>(limit_s), [] { return false; });
          if (!no_longer.stop_requested()) passed_.request_stop();
        }) {}

  std::stop_token token() const { return passed_.get_token(); }

 private:
  std::stop_source passed_;
  std::jthread timer_;  // Last: joined before what it stops is gone.
};

}  // namespace moeplan::service
