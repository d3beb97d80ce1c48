#include "planner/service/watch/watch_stream.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "planner/service/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

class WatchStream final : public grpc::ServerWriteReactor<v1::WatchPlanResponse>,
                          public PlanOutlet,
                          public RevocableStream {
 public:
  static WatchStream* Make(PlanWatchers& watchers, StreamCall call, grpc::CallbackServerContext& context,
                           const v1::WatchPlanRequest& request) {
    const std::shared_ptr<WatchStream> stream(new WatchStream(watchers, std::move(call), context));
    stream->self_ = stream;
    stream->call_.Opened(stream);
    const StatusOr<std::uint64_t> watcher = watchers.Add(request, stream);
    if (!watcher.ok()) {
      stream->End(watcher.status());
    } else {
      const std::scoped_lock lock(stream->mutex_);
      stream->watcher_ = *watcher;
      if (stream->ending_) watchers.Remove(*watcher);  // It left before it had a number.
    }
    return stream.get();
  }

  void Send(const v1::WatchPlanResponse& response) override {
    const std::scoped_lock lock(mutex_);
    if (ending_) return;
    next_ = response;
    if (!writing_) WriteNext();
  }

  void End(const Status& why) override {
    const std::scoped_lock lock(mutex_);
    EndLocked(ToGrpc(why));
  }

  void Revoke(const grpc::Status& why) override {
    std::uint64_t watcher = 0;
    {
      const std::scoped_lock lock(mutex_);
      watcher = watcher_;
      if (ending_ && writing_) return context_.TryCancel();
      ending_ = true;
      status_ = why;
      if (!writing_) FinishOnce();
    }
    watchers_.Remove(watcher);
  }

  void OnWriteDone(bool ok) override {
    const std::scoped_lock lock(mutex_);
    writing_ = false;
    if (ending_) return FinishOnce();
    if (!ok) return EndLocked(ToGrpc(error::CallerLeft()));
    if (next_) WriteNext();
  }

  void OnCancel() override {
    std::uint64_t watcher = 0;
    {
      const std::scoped_lock lock(mutex_);
      watcher = watcher_;
      EndLocked(ToGrpc(error::CallerLeft()));
    }
    watchers_.Remove(watcher);
  }

  void OnDone() override { self_.reset(); }

 private:
  WatchStream(PlanWatchers& watchers, StreamCall call, grpc::CallbackServerContext& context)
      : watchers_(watchers), call_(std::move(call)), context_(context) {}

  void WriteNext() {
    writing_ = true;
    current_ = *std::exchange(next_, std::nullopt);
    StartWrite(&current_);
  }

  void EndLocked(const grpc::Status& why) {
    if (std::exchange(ending_, true)) return;
    status_ = why;
    if (!writing_) return FinishOnce();
    // One write at a time; one that is stuck would never end.
    context_.TryCancel();
  }

  void FinishOnce() {
    if (std::exchange(finished_, true)) return;
    call_.Ended(status_);
    Finish(status_);
  }

  PlanWatchers& watchers_;
  StreamCall call_;
  grpc::CallbackServerContext& context_;
  // Shared with the watchers, who may still hold the outlet when gRPC is done; given up then.
  std::shared_ptr<WatchStream> self_;
  std::mutex mutex_;
  std::uint64_t watcher_ = 0;  // Guarded by mutex_, as is all below. 0: none.
  v1::WatchPlanResponse current_;
  std::optional<v1::WatchPlanResponse> next_;
  bool writing_ = false, ending_ = false, finished_ = false;
  grpc::Status status_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchPlanResponse>* ServeWatcher(PlanWatchers& watchers, StreamCall call,
                                                              grpc::CallbackServerContext& context,
                                                              const v1::WatchPlanRequest& request) {
  return WatchStream::Make(watchers, std::move(call), context, request);
}

}  // namespace moeplan::service
