// One call on its way through the service, whatever brought it.
#pragma once

#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "planner/service/calls/method.h"
#include "planner/service/errors.h"

namespace moeplan::service {

// A message as bytes, shared by those who wait for the same one.
using Bytes = std::shared_ptr<const std::string>;

struct Answer {
  grpc::Status status;
  Bytes message;  // Set when the status is OK.
};

// Who calls, as its transport tells when it is asked: most calls are answered without anybody asking.
class Origin {
 public:
  virtual ~Origin() = default;
  virtual std::string address() const = 0;  // Of the other end.
  virtual std::string token() const = 0;    // What it brought as "authorization: Bearer TOKEN"; empty: nothing.
  virtual std::string certificate() const { return {}; }  // The subject of its certificate; empty: it brought none.
  virtual std::string request_id() const = 0;             // The caller's own, or a new one; the same every time.
};

class Call {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(const Answer&)>;
  using Observer = std::function<void(const Call&, const Answer&)>;

  // `request` are the message's bytes; they and `origin` must stay until `done` is called, once, on any thread: at the
  // latest when the call is cancelled, though whoever works on its answer may not have stopped yet.
  // `observer` is told before; it outlives the call.
  Call(const Method& method, std::string_view transport, std::string_view request, const Origin& origin, Done done,
       const Observer& observer)
      : method_(method),
        transport_(transport),
        request_(request),
        origin_(origin),
        done_(std::move(done)),
        observer_(observer) {}

  const Method& method() const { return method_; }
  std::string_view transport() const { return transport_; }  // "grpc" or "http".
  std::string_view request() const { return request_; }      // Until Finish.
  const Origin& origin() const { return origin_; }           // Likewise.
  Clock::time_point began() const { return began_; }

  // Answers; later ones are ignored. Whether this was the first.
  bool Finish(const Answer& answer) {
    if (finished_.exchange(true)) return false;
    if (expired_ && answer.status.error_code() == grpc::CANCELLED) {
      Tell({.status = error::TooLate()});
    } else {
      Tell(answer);
    }
    return true;
  }

  // As Cancel, where the transport itself does not tell the caller that its deadline has passed.
  void Expire() {
    expired_ = true;
    Cancel();
  }

  // The caller has left or its deadline has passed. Any thread, any number of times.
  void Cancel() {
    cancelled_.request_stop();
    std::unique_lock lock(mutex_);
    const std::function<void()> hook = std::exchange(when_cancelled_, nullptr);
    lock.unlock();
    if (hook) hook();
  }
  std::stop_token cancelled() const { return cancelled_.get_token(); }

  // Has `hook` called, once, when the call is cancelled: at once if it has been.
  void WhenCancelled(std::function<void()> hook) {
    {
      const std::scoped_lock lock(mutex_);
      if (!cancelled_.stop_requested()) {
        when_cancelled_ = std::move(hook);
        return;
      }
    }
    hook();
  }

 private:
  void Tell(const Answer& answer) {
    observer_(*this, answer);
    std::exchange(done_, nullptr)(answer);
  }

  const Method& method_;
  const std::string_view transport_, request_;
  const Origin& origin_;
  const Clock::time_point began_ = Clock::now();
  std::atomic<bool> finished_ = false, expired_ = false;
  Done done_;
  const Observer& observer_;
  std::stop_source cancelled_;
  std::mutex mutex_;
  std::function<void()> when_cancelled_;  // Guarded by mutex_.
};

}  // namespace moeplan::service
