#include "planner/client/agent_connection.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "moeplan/v1/agent_service.grpc.pb.h"
#include "planner/client/channel.h"
#include "planner/client/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::client {
namespace {

constexpr size_t kMostQueued = 4096;  // Each answer of each rank is one message.

class Connection final : public AgentConnection, public grpc::ClientBidiReactor<v1::AttachRequest, v1::AttachResponse> {
 public:
  Connection(const ConnectOptions& options, const std::shared_ptr<grpc::Channel>& channel, Callbacks callbacks)
      : address_(options.address), stub_(v1::AgentService::NewStub(channel)), callbacks_(std::move(callbacks)) {
    client::Identify(context_, options);
  }

  ~Connection() override {
    End();
    std::unique_lock lock(mutex_);
    over_.wait(lock, [this] { return done_; });
  }

  void Begin(const v1::AgentRegistration& registration) {
    stub_->async()->Attach(&context_, this);
    v1::AttachRequest first;
    *first.mutable_registration() = registration;
    // Writes that other threads begin must find the call open.
    AddHold();
    (void)Send(std::move(first));
    StartRead(&incoming_);
    StartCall();
  }

  bool Send(v1::AttachRequest message) override {
    const std::scoped_lock lock(mutex_);
    if (ending_) return false;
    queue_.push_back(std::move(message));
    if (queue_.size() > kMostQueued) {
      overflow_ = true;
      EndLocked();
      return false;
    }
    if (!writing_) WriteNext();
    return true;
  }

  void End() override {
    const std::scoped_lock lock(mutex_);
    EndLocked();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Leave();
    callbacks_.received(std::move(incoming_));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::scoped_lock lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) return LeaveLocked();
    if (!ending_ && !queue_.empty()) WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    callbacks_.ended(Reason(status));
    const std::scoped_lock lock(mutex_);
    done_ = true;
    over_.notify_all();
  }

 private:
  void WriteNext() {
    writing_ = true;
    StartWrite(&queue_.front());
  }

  void EndLocked() {
    if (!ending_) context_.TryCancel();
    LeaveLocked();
  }

  // The planner has ended it; to cancel now could hide its reason.
  void Leave() {
    const std::scoped_lock lock(mutex_);
    LeaveLocked();
  }
  void LeaveLocked() {
    if (!std::exchange(ending_, true)) RemoveHold();
  }

  Status Reason(const grpc::Status& status) {
    const std::scoped_lock lock(mutex_);
    if (overflow_) return Unavailable("the planner at " + address_ + " does not read what is sent to it");
    const bool answered = context_.GetServerTrailingMetadata().contains(kAnsweredByPlanner);
    if (answered && !status.ok()) return FromGrpc(status);
    return client::error::NoPlanner(address_, status.ok() ? "it ended the connection" : status.error_message());
  }

  const std::string address_;
  const std::unique_ptr<v1::AgentService::Stub> stub_;
  const Callbacks callbacks_;
  grpc::ClientContext context_;
  v1::AttachResponse incoming_;

  std::mutex mutex_;
  std::condition_variable over_;
  std::deque<v1::AttachRequest> queue_;  // Guarded by mutex_, as is all below. The first is being written.
  bool writing_ = false;
  bool ending_ = false;
  bool overflow_ = false;
  bool done_ = false;
};

}  // namespace

ConnectAgent ConnectAgentWith(const ConnectOptions& options) {
  return [options](const v1::AgentRegistration& registration,
                   AgentConnection::Callbacks callbacks) -> StatusOr<std::unique_ptr<AgentConnection>> {
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, client::OpenChannel(options));
    auto connection = std::make_unique<Connection>(options, channel, std::move(callbacks));
    connection->Begin(registration);
    return connection;
  };
}

}  // namespace moeplan::client
