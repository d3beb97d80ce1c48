#include "planner/service/fleet/agent_stream.h"

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "planner/service/errors.h"
#include "planner/service/fleet/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostMessageBytes = size_t{16} << 20;
constexpr size_t kMostQueued = 256;
constexpr size_t kMostQueuedBytes = size_t{32} << 20;

class AgentStream final : public grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>,
                          public AgentOutlet,
                          public RevocableStream {
 public:
  static AgentStream* Make(AgentHub& hub, StreamCall call, grpc::CallbackServerContext& context) {
    const std::shared_ptr<AgentStream> stream(new AgentStream(hub, std::move(call), context));
    stream->self_ = stream;
    stream->call_.Opened(stream);
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }

  void Send(v1::AttachResponse message) override {
    const std::scoped_lock lock(mutex_);
    if (ending_) return;
    queued_bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
    if (queue_.size() > kMostQueued || queued_bytes_ > kMostQueuedBytes)
      return EndLocked(ToGrpc(error::QueueOverflow()));
    if (!writing_) WriteNext();
  }

  void End(const Status& why) override {
    const std::scoped_lock lock(mutex_);
    EndLocked(ToGrpc(why));
  }

  // The hub hears of it when the read ends.
  void Revoke(const grpc::Status& why) override {
    const std::scoped_lock lock(mutex_);
    if (ending_ && writing_) return context_.TryCancel();
    if (std::exchange(ending_, true)) return;
    status_ = why;
    if (!writing_) FinishOnce();
  }

  void OnReadDone(bool ok) override {
    if (!ok || Ending()) return Leave(WhyNothingIsRead());
    const Status taken = Take();
    if (!taken.ok()) return Leave(taken);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::scoped_lock lock(mutex_);
    writing_ = false;
    queued_bytes_ -= queue_.front().ByteSizeLong();
    queue_.pop_front();
    if (ending_) return FinishOnce();
    if (!ok) return EndLocked(ToGrpc(error::CallerLeft()));
    if (!queue_.empty()) WriteNext();
  }

  void OnCancel() override {}  // The read that is always open tells.
  void OnDone() override { self_.reset(); }

 private:
  AgentStream(AgentHub& hub, StreamCall call, grpc::CallbackServerContext& context)
      : hub_(hub), call_(std::move(call)), context_(context) {}

  Status Take() {
    const size_t bytes = incoming_.ByteSizeLong();
    if (bytes > kMostMessageBytes) return error::MessageTooLarge(bytes, kMostMessageBytes);
    if (agent_ != 0) return hub_.Receive(agent_, std::move(incoming_));
    if (!incoming_.has_registration()) return error::NotRegistered();
    ASSIGN_OR_RETURN(agent_, hub_.Attach(incoming_.registration(), call_.caller(), self_));
    return OkStatus();
  }

  bool Ending() {
    const std::scoped_lock lock(mutex_);
    return ending_;
  }

  Status WhyNothingIsRead() {
    const std::scoped_lock lock(mutex_);
    if (ending_) return FromGrpc(status_);
    return context_.IsCancelled() ? error::CallerLeft() : OkStatus();
  }

  // Nothing is read any more.
  void Leave(const Status& why) {
    if (agent_ != 0) hub_.Detach(agent_, why.code() == StatusCode::kCancelled ? OkStatus() : why);
    End(why);
  }

  void WriteNext() {
    writing_ = true;
    StartWrite(&queue_.front());
  }

  void EndLocked(const grpc::Status& why) {
    if (ending_) return;
    ending_ = true;
    status_ = why;
    if (!writing_) return FinishOnce();
    // gRPC takes one write at a time. One that is stuck would never end.
    context_.TryCancel();
  }

  void FinishOnce() {
    if (std::exchange(finished_, true)) return;
    call_.Ended(status_);
    Finish(status_);
  }

  AgentHub& hub_;
  StreamCall call_;
  grpc::CallbackServerContext& context_;
  // Shared with the hub, which may still hold the outlet when gRPC is done; given up then.
  std::shared_ptr<AgentStream> self_;
  v1::AttachRequest incoming_;
  AgentNumber agent_ = 0;  // 0: not registered. Touched by reads alone.

  std::mutex mutex_;
  std::deque<v1::AttachResponse> queue_;  // Guarded by mutex_, as is all below. The first is being written.
  size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* ServeAgent(AgentHub& hub, StreamCall call,
                                                                           grpc::CallbackServerContext& context) {
  return AgentStream::Make(hub, std::move(call), context);
}

}  // namespace moeplan::service
