// What a CUDA device, its streams and its recordings share: any of them may go first.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "executor/cuda/capture_scope.h"
#include "executor/cuda/clock_anchor.h"
#include "executor/cuda/stream_priority.h"
#include "executor/first_failure.h"
#include "executor/host/host_stream.h"

namespace moeplan::executor::cuda {

// An event of the card whose time the host's clock knows.
struct Anchor {
  cudaEvent_t event = nullptr;
  AnchorTimes times;

  Anchor() = default;
  Anchor(const Anchor&) = delete;
  Anchor& operator=(const Anchor&) = delete;
  ~Anchor() {
    if (event != nullptr) cudaEventDestroy(event);
  }
};

// The point of a stream, and, while a graph is captured, two: a graph's event of a time is none that the same graph can
// wait for.
struct CudaEvent final : Event {
  cudaEvent_t timed = nullptr, inside = nullptr;
  std::shared_ptr<const Anchor> anchor;  // The newest when it was recorded; null: never.

  ~CudaEvent() override {
    for (cudaEvent_t event : {timed, inside}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
};

struct SharedCard;

// Work of the host on a stream; its address stays until it has run.
struct HostCall {
  SharedCard* card = nullptr;
  HostStream::Work work;
  std::atomic<bool> ran = false;
};

class CudaStream;
using Scope = CaptureScope<CudaStream, CudaEvent>;

struct SharedCard {
  FirstFailure failure;
  PriorityRange priorities;
  cudaStream_t origin = nullptr;   // Where captures begin.
  cudaStream_t service = nullptr;  // Nothing is ever captured here.
  std::vector<CudaStream*> streams;
  std::shared_ptr<const Anchor> anchor;
  Scope* scope = nullptr;  // While capturing.
  std::deque<HostCall>* scope_calls = nullptr;
  std::deque<HostCall> calls;  // Those queued directly.
  std::list<std::function<void()>> watches;
  uint64_t replays = 0;

  // An error becomes the device's failure, or, while capturing, the reason why there is no graph.
  void Check(cudaError_t error, const std::string& what);
  // Blocks until `passed` says so. Meanwhile every few milliseconds, and at the end, it calls the watches, which free
  // streams that wait for a lost peer: so nothing else waits for streams of this card.
  // After a failure, which lets go of what waits for peers, it blocks that long at most: streams may also wait for a
  // stream of the job that nobody lets go of.
  void Await(const std::function<bool()>& passed, std::chrono::seconds after_failure = std::chrono::seconds(10));
  // An error of the stream ends this, too: who asks for results meets it.
  void AwaitEnd(cudaStream_t stream);
  // The same of an event, whose stream may be gone.
  void AwaitEnd(cudaEvent_t event);
  // Runs `work` in order on `stream`; it is skipped when the device has failed by then.
  void QueueWork(HostStream::Work work, cudaStream_t stream);

  SharedCard() = default;
  SharedCard(const SharedCard&) = delete;
  SharedCard& operator=(const SharedCard&) = delete;
  ~SharedCard();
};

class CudaStream final : public HostStream {
 public:
  CudaStream(std::shared_ptr<SharedCard> card, cudaStream_t stream, std::string name);
  ~CudaStream() override;

  void Enqueue(Work work) override;

  // Joins the capture, if there is one.
  cudaStream_t Get();
  // Makes `other` wait for all that the stream has queued, or the stream for all that `other` has.
  void Hold(cudaStream_t other);
  void Follow(cudaStream_t other);
  const std::string& name() const { return name_; }
  SharedCard& card() { return *card_; }
  cudaStream_t raw() const { return stream_; }
  // Pinned memory that copies on this stream take turns with; null when there is none, and the device has failed.
  std::byte* Staging();

  static CudaStream& Of(Stream& stream) { return static_cast<CudaStream&>(stream); }

 private:
  const std::shared_ptr<SharedCard> card_;
  const cudaStream_t stream_;
  const std::string name_;
  cudaEvent_t reached_ = nullptr, followed_ = nullptr;
  DeviceMemory staging_;
};

// How much of a copy goes through pinned memory at a time.
inline constexpr size_t kStagingBytes = size_t{4} << 20;

}  // namespace moeplan::executor::cuda
