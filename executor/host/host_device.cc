#include "executor/host/host_device.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/host/host_stream.h"
#include "models/text.h"

namespace moeplan {
namespace {

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class ThreadEvent final : public Event {
 public:
  // The pass that the next Record will make.
  uint64_t Announce() {
    const std::lock_guard lock(mutex_);
    return ++announced_;
  }

  uint64_t announced() const {
    const std::lock_guard lock(mutex_);
    return announced_;
  }

  void Pass(uint64_t pass) {
    const std::lock_guard lock(mutex_);
    passed_ = pass;
    time_s_ = NowS();
    changed_.notify_all();
  }

  void Await(uint64_t pass) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_ >= pass; });
  }

  double time_s() const {
    const std::lock_guard lock(mutex_);
    return time_s_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t announced_ = 0;
  uint64_t passed_ = 0;
  double time_s_ = 0;
};

// What the streams of a device share.
class Failure {
 public:
  void Set(const Status& why) {
    std::function<void(const Status&)> callback;
    {
      const std::lock_guard lock(mutex_);
      if (!first_.ok()) return;
      first_ = why;
      failed_ = true;
      callback = callback_;
    }
    if (callback) callback(why);
  }

  bool failed() const { return failed_; }

  Status first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

  void OnFailure(std::function<void(const Status&)> callback) {
    const std::lock_guard lock(mutex_);
    callback_ = std::move(callback);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status first_;
  std::function<void(const Status&)> callback_;
};

class ThreadStream final : public HostStream {
 public:
  explicit ThreadStream(std::shared_ptr<Failure> failure)
      : failure_(std::move(failure)), thread_([this](const std::stop_token& stop) { RunUntil(stop); }) {}

  ~ThreadStream() override {
    {
      // Under the lock, or the thread may be between looking and waiting and miss it.
      const std::lock_guard lock(mutex_);
      thread_.request_stop();
    }
    changed_.notify_all();
  }

  void Enqueue(Work work) override {
    Push([this, work = std::move(work)] {
      if (failure_->failed()) return;
      if (const Status status = work(); !status.ok()) failure_->Set(status);
    });
  }

  // Runs even on a failed device, so that events pass and nobody waits for ever.
  void Push(std::function<void()> step) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
    changed_.notify_all();
  }

  void AwaitIdle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return steps_.empty() && !busy_; });
  }

 private:
  void RunUntil(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !steps_.empty() || stop.stop_requested(); });
      if (steps_.empty()) return;
      const std::function<void()> step = std::move(steps_.front());
      steps_.pop_front();
      busy_ = true;
      lock.unlock();
      step();
      lock.lock();
      busy_ = false;
      if (steps_.empty()) changed_.notify_all();
    }
  }

  std::shared_ptr<Failure> failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> steps_;
  bool busy_ = false;
  std::jthread thread_;  // Last: it uses all of the above.
};

class ThreadedDevice final : public HostDevice {
 public:
  StatusOr<DeviceMemory> Allocate(size_t bytes) override { return AllocateHostMemory(bytes); }

  std::unique_ptr<Stream> MakeStream(const std::string&) override {
    auto stream = std::make_unique<ThreadStream>(failure_);
    streams_.push_back(stream.get());
    return stream;
  }

  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<ThreadEvent>(); }

  void Record(Event& event, Stream& stream) override {
    auto& marked = static_cast<ThreadEvent&>(event);
    static_cast<ThreadStream&>(stream).Push([&marked, pass = marked.Announce()] { marked.Pass(pass); });
  }

  void Wait(Stream& stream, Event& event) override {
    auto& awaited = static_cast<ThreadEvent&>(event);
    static_cast<ThreadStream&>(stream).Push([&awaited, pass = awaited.announced()] { awaited.Await(pass); });
  }

  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    HostStream::Of(stream).Enqueue([=] {
      std::memcpy(to, from, bytes);
      return OkStatus();
    });
  }

  void Label(Stream& stream, const std::string& task) override { HostStream::Of(stream).set_label(task); }

  Status Synchronize() override {
    for (ThreadStream* stream : streams_) stream->AwaitIdle();
    return failure_->first();
  }

  double TimeS(const Event& event) const override { return static_cast<const ThreadEvent&>(event).time_s(); }

  void Fail(const Status& why) override { failure_->Set(why); }
  void OnFailure(std::function<void(const Status&)> callback) override { failure_->OnFailure(std::move(callback)); }

 private:
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();  // Shared: streams may outlive the device.
  std::vector<ThreadStream*> streams_;
};

}  // namespace

std::unique_ptr<HostDevice> MakeHostDevice() { return std::make_unique<ThreadedDevice>(); }

StatusOr<DeviceMemory> AllocateHostMemory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment)));
  if (data == nullptr) return Unavailable(StrCat("out of memory: asked for ", bytes, " bytes"));
  std::memset(data, 0, rounded);
  return DeviceMemory(data, bytes, [](std::byte* memory) { std::free(memory); });
}

}  // namespace moeplan
