#include "executor/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "executor/cuda/environment.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/graph_recording.h"
#include "executor/cuda/machine_errors.h"
#include "executor/cuda/pinned_memory.h"
#include "executor/cuda/shared_card.h"
#include "executor/cuda/stream_priority.h"
#include "executor/cuda/task_range.h"
#include "models/check.h"

namespace moeplan::executor::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double NowS() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

CudaEvent& EventOf(Event& event) { return static_cast<CudaEvent&>(event); }

enum class Where { kCard, kPinned, kPageable };

Where WhereIs(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();
    return Where::kPageable;
  }
  switch (attributes.type) {
    case cudaMemoryTypeUnregistered: return Where::kPageable;
    case cudaMemoryTypeHost: return Where::kPinned;
    default: return Where::kCard;
  }
}

StatusOr<DeviceMemory> AllocateOnCard(size_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, std::max<size_t>(bytes, 1)) != cudaSuccess) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);  // Zeros where it fails.
    return error::NoDeviceMemory(bytes, free, total);
  }
  return DeviceMemory(static_cast<std::byte*>(data), bytes, [](std::byte* gone) { cudaFree(gone); });
}

class OneCard final : public CudaDevice {
 public:
  explicit OneCard(const CudaDeviceOptions& options) : options_(options) {}

  Status Open() {
    PrepareEnvironment();
    int found = 0;
    cudaError_t error = cudaGetDeviceCount(&found);
    if (error == cudaSuccess && options_.card >= found) error = cudaErrorInvalidDevice;
    if (error == cudaSuccess) error = cudaSetDevice(options_.card);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return error::NoCard(options_.card, found, cudaGetErrorString(error));
    }
    PriorityRange& range = card_->priorities;
    RETURN_IF_ERROR(StatusOf(cudaDeviceGetStreamPriorityRange(&range.least, &range.greatest), "priorities"));
    for (cudaStream_t* stream : {&card_->origin, &card_->service}) {
      RETURN_IF_ERROR(
          StatusOf(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, range.greatest), "a stream"));
    }
    DropAnchor();
    return failure().first();
  }

  StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    ASSIGN_OR_RETURN(DeviceMemory memory,
                     options_.memory == MemoryKind::kPinned ? AllocatePinned(bytes) : AllocateOnCard(bytes));
    RETURN_IF_ERROR(StatusOf(cudaMemsetAsync(memory.data(), 0, bytes, card_->service), "memory set to zero"));
    RETURN_IF_ERROR(StatusOf(cudaStreamSynchronize(card_->service), "memory set to zero"));
    return memory;
  }

  bool host_reads_memory() const override { return false; }

  StatusOr<DeviceMemory> Upload(const std::byte* from, size_t bytes) override {
    ASSIGN_OR_RETURN(DeviceMemory memory, Allocate(bytes));
    if (bytes == 0) return memory;
    RETURN_IF_ERROR(
        StatusOf(cudaMemcpyAsync(memory.data(), from, bytes, cudaMemcpyDefault, card_->service), "an upload"));
    RETURN_IF_ERROR(StatusOf(cudaStreamSynchronize(card_->service), "an upload"));
    return memory;
  }

  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority) override {
    cudaStream_t stream = nullptr;
    const int number = PriorityOf(priority, card_->priorities);
    card_->Check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, number), StrCat("stream ", name));
    return std::make_unique<CudaStream>(card_, stream, name);
  }

  bool data_goes_last() const override {
    return PriorityOf(StreamPriority::kData, card_->priorities) > PriorityOf(StreamPriority::kHigh, card_->priorities);
  }

  std::unique_ptr<Event> MakeEvent() override {
    auto event = std::make_unique<CudaEvent>();
    card_->Check(cudaEventCreateWithFlags(&event->timed, cudaEventDefault), "an event");
    return event;
  }

  void Record(Event& event, Stream& stream) override {
    CudaEvent& own = EventOf(event);
    cudaStream_t on = StreamOf(stream);
    own.anchor = card_->anchor;
    if (!capturing()) return card_->Check(cudaEventRecord(own.timed, on), "an event");
    if (own.inside == nullptr) card_->Check(cudaEventCreateWithFlags(&own.inside, cudaEventDisableTiming), "an event");
    card_->Check(cudaEventRecordWithFlags(own.timed, on, cudaEventRecordExternal), "an event of a graph");
    card_->Check(cudaEventRecord(own.inside, on), "an event of a capture");
    card_->scope->Record(&own);
  }

  void Wait(Stream& stream, Event& event) override {
    CudaEvent& own = EventOf(event);
    cudaStream_t on = StreamOf(stream);
    const bool from_inside = capturing() && card_->scope->RecordedInside(&own);
    const unsigned flags = capturing() && !from_inside ? cudaEventWaitExternal : cudaEventWaitDefault;
    card_->Check(cudaStreamWaitEvent(on, from_inside ? own.inside : own.timed, flags), "a wait");
  }

  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    if (failure().failed() || bytes == 0) return;
    const Where source = PlaceOf(from), target = PlaceOf(to);
    if (source != Where::kCard && target != Where::kCard) return CopyOnHost(to, from, bytes, stream);
    if (source == Where::kPageable || target == Where::kPageable) return CopyInPieces(to, from, bytes, stream);
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(stream)), stream, "a copy");
  }

  void Label(Stream& stream, const std::string& task) override {
    HostStream::Of(stream).set_label(task);
    range_.Begin(task);
  }

  std::unique_ptr<Recording> Capture(std::function<void()> queue) override {
    return MakeGraphRecording(card_, std::move(queue));
  }

  Status FollowJob(Stream& stream, JobStream job) override {
    if (failure().failed()) return failure().first();
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(static_cast<cudaStream_t>(job), &captured) != cudaSuccess) cudaGetLastError();
    if (captured != cudaStreamCaptureStatusNone) return error::StreamIsCaptured();
    CudaStream::Of(stream).Follow(static_cast<cudaStream_t>(job));
    return failure().first();
  }

  void HoldJob(JobStream job, Stream& stream) override {
    CudaStream::Of(stream).Hold(static_cast<cudaStream_t>(job));
    range_.End();
  }

  bool Holds(const void* memory) const override { return PlaceOf(memory) == Where::kCard; }

  std::shared_ptr<void> Enter() override {
    int before = options_.card;
    // Another thread of the job may be capturing a graph, which what this one does here must not end.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    card_->Check(cudaThreadExchangeStreamCaptureMode(&mode), "the capture mode of a thread");
    card_->Check(cudaGetDevice(&before), "the card of a thread");
    if (before != options_.card) card_->Check(cudaSetDevice(options_.card), "the card of a thread");
    return {nullptr, [before, mode, own = options_.card](void*) mutable {
              cudaThreadExchangeStreamCaptureMode(&mode);
              if (before != own) cudaSetDevice(before);
            }};
  }

  void Look() override {
    for (const auto& look : card_->watches) look();
    (void)StreamsHavePassed();
  }
  Status first_error() const override { return card_->failure.first(); }

  Status Synchronize() override {
    range_.End();
    card_->Await([this] { return HasPassed(card_->origin, "(captures)", "") && StreamsHavePassed(); });
    if (failure().failed()) return failure().first();
    card_->calls.clear();
    if (NowS() - card_->anchor->times.seen_s > kAnchorAgeS) DropAnchor();
    return failure().first();
  }

  double TimeS(const Event& event) const override {
    const auto& own = static_cast<const CudaEvent&>(event);
    float elapsed_ms = 0;
    if (own.anchor == nullptr || cudaEventElapsedTime(&elapsed_ms, own.anchor->event, own.timed) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return TimeBehindS(own.anchor->times, elapsed_ms);
  }

  double clock_uncertainty_s() const override { return card_->anchor->times.uncertainty_s(); }

  void Fail(const Status& why) override { failure().Set(why); }
  void OnFailure(std::function<void(const Status&)> callback) override { failure().OnFailure(std::move(callback)); }
  bool failed() const override { return card_->failure.failed(); }

  bool capturing() const override { return card_->scope != nullptr; }
  void KeepWithCapture(std::shared_ptr<void> handle) override {
    MOEPLAN_CHECK(capturing());
    card_->scope->Keep(std::move(handle));
  }
  void RefuseCapture(const std::string& why) override {
    MOEPLAN_CHECK(capturing());
    card_->scope->RefuseOnAllRanks(why);
  }
  uint64_t replays() const override { return card_->replays; }

  Status Await(Stream& stream) override {
    MOEPLAN_CHECK(!capturing());
    CudaStream& own = CudaStream::Of(stream);
    card_->Await([&] { return HasPassed(own.raw(), own.name(), own.label()); });
    return failure().first();
  }

  std::shared_ptr<void> Watch(std::function<void()> look) override {
    const auto at = card_->watches.insert(card_->watches.end(), std::move(look));
    return {nullptr, [at, card = card_](void*) { card->watches.erase(at); }};
  }

 private:
  FirstFailure& failure() { return card_->failure; }

  void Check(cudaError_t error, Stream& stream, const std::string& what) {
    card_->Check(error, StrCat("task ", HostStream::Of(stream).label(), ": ", what));
  }

  // Pinned memory is copied as the card's where it stands for that.
  Where PlaceOf(const void* data) const {
    const Where place = WhereIs(data);
    return place == Where::kPinned && options_.memory == MemoryKind::kPinned ? Where::kCard : place;
  }

  void CopyOnHost(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) {
    CudaStream::Of(stream).Enqueue([=] {
      std::memcpy(to, from, bytes);
      return OkStatus();
    });
  }

  void CopyInPieces(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) {
    CudaStream& own = CudaStream::Of(stream);
    std::byte* const pinned = own.Staging();
    if (pinned == nullptr) return;
    const bool to_card = PlaceOf(to) == Where::kCard;
    for (size_t first = 0; first < bytes; first += kStagingBytes) {
      const size_t piece = std::min(bytes - first, kStagingBytes);
      if (to_card) CopyOnHost(pinned, from + first, piece, stream);
      Check(cudaMemcpyAsync(to_card ? to + first : pinned, to_card ? pinned : from + first, piece, cudaMemcpyDefault,
                            own.Get()),
            stream, "a copy through pinned memory");
      if (!to_card) CopyOnHost(to + first, pinned, piece, stream);
    }
  }

  bool StreamsHavePassed() {
    return std::ranges::all_of(card_->streams,
                               [this](CudaStream* one) { return HasPassed(one->raw(), one->name(), one->label()); });
  }

  // After an error of the card nothing can be waited for.
  bool HasPassed(cudaStream_t stream, const std::string& name, const std::string& last_task) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) return false;
    if (error == cudaErrorCudartUnloading) return true;  // The process ends, which is no failure to tell others of.
    if (error != cudaSuccess) failure().Set(error::StreamFailed(name, last_task, cudaGetErrorString(error)));
    return true;
  }

  // The tightest of a few tries, as the host may be kept waiting within one. Requires that the origin stream is idle.
  void DropAnchor() {
    constexpr int kTries = 8;
    std::shared_ptr<Anchor> tightest;
    for (int i = 0; i < kTries; ++i) {
      auto anchor = std::make_shared<Anchor>();
      card_->Check(cudaEventCreateWithFlags(&anchor->event, cudaEventDefault), "an anchor");
      anchor->times.asked_s = NowS();
      card_->Check(cudaEventRecord(anchor->event, card_->origin), "an anchor");
      card_->Check(cudaEventSynchronize(anchor->event), "an anchor");
      anchor->times.seen_s = NowS();
      if (tightest == nullptr || anchor->times.uncertainty_s() < tightest->times.uncertainty_s()) tightest = anchor;
      if (tightest->times.uncertainty_s() < kTightS) break;
    }
    card_->anchor = std::move(tightest);
  }
  static constexpr double kTightS = 10e-6;

  const CudaDeviceOptions options_;
  const std::shared_ptr<SharedCard> card_ = std::make_shared<SharedCard>();
  TaskRange range_;
};

}  // namespace

StatusOr<std::unique_ptr<CudaDevice>> MakeCudaDevice(const CudaDeviceOptions& options) {
  auto device = std::make_unique<OneCard>(options);
  RETURN_IF_ERROR(device->Open());
  return device;
}

}  // namespace moeplan::executor::cuda
