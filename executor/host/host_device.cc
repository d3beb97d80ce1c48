#include "executor/host/host_device.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <vector>

#include "executor/first_failure.h"
#include "executor/host/host_stream.h"
#include "executor/host/stream_crew.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

// Steps taken down instead of being run, in the order they came.
struct Tape {
  std::vector<QueuedStep> steps;
  std::deque<HostStream::Work> works;  // Their addresses stay.
};

// Extensions run here, too (models/extension/extension.h).
Status Try(const HostStream::Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return InternalError(StrCat("found the exception \"", error.what(), "\" in the work of a stream"));
  }
}

// What a device, its streams and its recordings share: any of them may go first.
struct Shared {
  FirstFailure failure;
  StreamCrew crew{[this](const HostStream::Work& work) {
    if (failure.failed()) return;  // Work alone is skipped: events pass, so that nobody waits for ever.
    if (const Status status = Try(work); !status.ok()) failure.Set(status);
  }};
  Tape* tape = nullptr;  // While capturing.
};

class ThreadStream final : public HostStream {
 public:
  ThreadStream(std::shared_ptr<Shared> shared, StreamPriority priority) : shared_(std::move(shared)) {
    shared_->crew.Join(queue_, priority);
  }
  ~ThreadStream() override { shared_->crew.Leave(queue_); }

  void Enqueue(Work work) override {
    if (Tape* tape = shared_->tape; tape != nullptr) {
      tape->works.push_back(std::move(work));
      return Push(CrewStep::Run(&tape->works.back(), /*owned=*/false));
    }
    Push(CrewStep::Run(new Work(std::move(work)), /*owned=*/true));
  }

  const CrewStream& queue() const { return queue_; }

  void Push(const CrewStep& step) {
    const QueuedStep queued{&queue_, step};
    if (shared_->tape != nullptr) return shared_->tape->steps.push_back(queued);
    shared_->crew.Queue({&queued, 1});
  }

 private:
  const std::shared_ptr<Shared> shared_;
  CrewStream queue_;
};

class TapeRecording final : public Recording {
 public:
  TapeRecording(std::shared_ptr<Shared> shared, const std::function<void()>& queue) : shared_(std::move(shared)) {
    shared_->tape = &tape_;
    queue();
    shared_->tape = nullptr;
    ReserveRoom();
  }
  ~TapeRecording() override { shared_->crew.AwaitIdle(); }

  void Enqueue() override { shared_->crew.Queue(tape_.steps); }

 private:
  // For one run under way, one that is queued behind it, and what else comes between them.
  void ReserveRoom() {
    constexpr size_t kOtherSteps = 64;
    std::map<CrewStream*, size_t> steps;
    for (const QueuedStep& queued : tape_.steps) ++steps[queued.stream];
    for (const auto& [stream, count] : steps) shared_->crew.Reserve(*stream, 2 * count + kOtherSteps);
  }

  const std::shared_ptr<Shared> shared_;
  Tape tape_;
};

class ThreadedDevice final : public HostDevice {
 public:
  StatusOr<DeviceMemory> Allocate(size_t bytes) override { return AllocateHostMemory(bytes); }
  bool host_reads_memory() const override { return true; }
  std::unique_ptr<Stream> MakeStream(const std::string&, StreamPriority priority) override {
    return std::make_unique<ThreadStream>(shared_, priority);
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<CrewEvent>(); }

  void Record(Event& event, Stream& stream) override {
    static_cast<ThreadStream&>(stream).Push(CrewStep::Record(static_cast<CrewEvent&>(event)));
  }

  void Wait(Stream& stream, Event& event) override {
    static_cast<ThreadStream&>(stream).Push(CrewStep::Wait(static_cast<CrewEvent&>(event)));
  }

  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    HostStream::Of(stream).Enqueue([=] {
      std::memcpy(to, from, bytes);
      return OkStatus();
    });
  }

  void Label(Stream& stream, const std::string& task) override { HostStream::Of(stream).set_label(task); }
  void SetTokens(Stream& stream, const CallTokens& tokens) override { HostStream::Of(stream).set_tokens(tokens); }

  std::unique_ptr<Recording> Capture(std::function<void()> queue) override {
    return std::make_unique<TapeRecording>(shared_, queue);
  }

  Status Synchronize() override {
    shared_->crew.AwaitIdle();
    return shared_->failure.first();
  }

  Status Await(Stream& stream) override {
    shared_->crew.AwaitStream(static_cast<ThreadStream&>(stream).queue());
    return shared_->failure.first();
  }

  Status first_error() const override { return shared_->failure.first(); }

  double TimeS(const Event& event) const override { return static_cast<const CrewEvent&>(event).time_s(); }

  void Fail(const Status& why) override { shared_->failure.Set(why); }
  void OnFailure(std::function<void(const Status&)> callback) override {
    shared_->failure.OnFailure(std::move(callback));
  }

 private:
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
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

}  // namespace moeplan::executor
