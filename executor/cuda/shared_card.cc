#include "executor/cuda/shared_card.h"

#include <chrono>
#include <exception>
#include <optional>

#include "executor/cuda/cuda_device.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/patience.h"
#include "executor/cuda/pinned_memory.h"

namespace moeplan::executor::cuda {
namespace {

// Extensions run here, too (models/extension/extension.h).
Status Try(const HostStream::Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return InternalError(StrCat("found the exception \"", error.what(), "\" in the work of a stream"));
  }
}

void CUDART_CB RunCall(void* data) {
  auto& call = *static_cast<HostCall*>(data);
  FirstFailure& failure = call.card->failure;
  if (!failure.failed()) {
    if (const Status status = Try(call.work); !status.ok()) failure.Set(status);
  }
  call.ran = true;
}

}  // namespace

void SharedCard::Check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  const Status status = StatusOf(error, what);
  scope != nullptr ? scope->Refuse(status.message()) : failure.Set(status);
}

void SharedCard::QueueWork(HostStream::Work work, cudaStream_t stream) {
  while (!calls.empty() && calls.front().ran) calls.pop_front();
  std::deque<HostCall>& list = scope != nullptr ? *scope_calls : calls;
  HostCall& call = list.emplace_back();
  call.card = this;
  call.work = std::move(work);
  const cudaError_t launched = cudaLaunchHostFunc(stream, RunCall, &call);
  if (launched != cudaSuccess) list.pop_back();
  Check(launched, "a host function");
}

void SharedCard::Await(const std::function<bool()>& passed, std::chrono::seconds after_failure) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
  const auto look = [this] {
    for (const auto& watch : watches) watch();
  };
  auto next_look = std::chrono::steady_clock::now() + kBetweenLooks;
  std::optional<std::chrono::steady_clock::time_point> failed;
  for (Patience patience; !passed(); patience.Rest()) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look) continue;
    look();
    next_look = now + kBetweenLooks;
    if (!failure.failed()) continue;
    if (!failed) failed = now;
    if (now - *failed > after_failure) return;
  }
  look();
}

void SharedCard::AwaitEnd(cudaStream_t stream) {
  Await([stream] { return cudaStreamQuery(stream) != cudaErrorNotReady; }, std::chrono::hours(24 * 365));
}

void SharedCard::AwaitEnd(cudaEvent_t event) {
  Await([event] { return cudaEventQuery(event) != cudaErrorNotReady; }, std::chrono::hours(24 * 365));
}

// Here and below: what cannot be destroyed is lost, and no reason to stop.
SharedCard::~SharedCard() {
  for (cudaStream_t stream : {origin, service}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

CudaStream::CudaStream(std::shared_ptr<SharedCard> card, cudaStream_t stream, std::string name)
    : card_(std::move(card)), stream_(stream), name_(std::move(name)) {
  for (cudaEvent_t* event : {&reached_, &followed_}) {
    card_->Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event");
  }
  card_->streams.push_back(this);
}

CudaStream::~CudaStream() {
  if (stream_ != nullptr) card_->AwaitEnd(stream_);
  std::erase(card_->streams, this);
  for (cudaEvent_t event : {reached_, followed_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaStream::Enqueue(Work work) {
  if (!card_->failure.failed()) card_->QueueWork(std::move(work), Get());
}

cudaStream_t CudaStream::Get() {
  if (card_->scope != nullptr && card_->scope->Join(this)) {
    card_->Check(cudaEventRecord(reached_, card_->origin), "the start of a capture");
    card_->Check(cudaStreamWaitEvent(stream_, reached_, 0), "a wait");
  }
  return stream_;
}

void CudaStream::Hold(cudaStream_t other) {
  card_->Check(cudaEventRecord(reached_, stream_), "an event");
  card_->Check(cudaStreamWaitEvent(other, reached_, 0), "a wait");
}

void CudaStream::Follow(cudaStream_t other) {
  card_->Check(cudaEventRecord(followed_, other), "an event");
  card_->Check(cudaStreamWaitEvent(stream_, followed_, 0), "a wait");
}

std::byte* CudaStream::Staging() {
  if (staging_.data() == nullptr) {
    StatusOr<DeviceMemory> made = AllocatePinned(kStagingBytes);
    made.ok() ? void(staging_ = *std::move(made)) : card_->failure.Set(made.status());
  }
  return staging_.data();
}

cudaStream_t StreamOf(Stream& stream) { return CudaStream::Of(stream).Get(); }

void Report(Stream& stream, const Status& launched) {
  if (launched.ok()) return;
  CudaStream& own = CudaStream::Of(stream);
  SharedCard& card = own.card();
  const Status status = launched.Within(StrCat("task ", own.label()));
  card.scope != nullptr ? card.scope->Refuse(status.message()) : card.failure.Set(status);
}

}  // namespace moeplan::executor::cuda
