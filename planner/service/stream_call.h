// A stream of gRPC as a call: with a request id in, out and in the log, asked for a token, counted and logged when it
// ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "planner/service/access/open_streams.h"
#include "planner/service/calls/dispatcher.h"

namespace moeplan::service {

// The header of that name; empty where there is none.
std::string_view Header(const grpc::CallbackServerContext& context, const char* name);

// The subject of the client's certificate (access/caller.h); empty where none was asked for.
std::string CertificateOf(const grpc::CallbackServerContext& context);

class StreamCall {
 public:
  // The stream of that path (StreamMethods). Tells its caller the request id, first and last.
  StreamCall(const Dispatcher& dispatcher, OpenStreams& open, std::string_view path,
             grpc::CallbackServerContext& context);
  ~StreamCall();
  StreamCall(StreamCall&&) noexcept;

  // Who opened it (access/caller.h).
  std::string caller() const;

  // Why it may not begin, counted; absent: it may.
  std::optional<grpc::Status> Refused();
  // Has the stream ended when its caller may no more.
  void Opened(std::weak_ptr<RevocableStream> stream);
  // Counts and logs it. Before the caller is told; later ones are ignored.
  void Ended(const grpc::Status& status);

 private:
  struct Caller;
  const Dispatcher* dispatcher_;
  OpenStreams* open_;
  std::unique_ptr<const Caller> caller_;
  std::shared_ptr<Call> call_;
};

// A stream that is told to leave at once; gRPC deletes it.
template <typename Reactor>
class RefusedStream final : public Reactor {
 public:
  RefusedStream(StreamCall call, const grpc::Status& why) {
    call.Ended(why);
    this->Finish(why);
  }
  void OnDone() override { delete this; }
};

}  // namespace moeplan::service
