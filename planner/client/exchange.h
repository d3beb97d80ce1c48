// An Exchange is one call of a method that is known by its path alone, in steps that each wait for their end. One
// thread.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "planner/client/connect_options.h"

namespace moeplan::client {

class Exchange {
 public:
  // Begins the call of `path`, such as "/moeplan.v1.PlannerService/Plan".
  Exchange(const std::shared_ptr<grpc::Channel>& channel, const ConnectOptions& options, const std::string& path);
  // Cancels the call where it has not ended.
  ~Exchange();
  Exchange(const Exchange&) = delete;

  // Sends the only request. A failure shows in Finish.
  void Send(const google::protobuf::Message& request);
  // Waits for the next answer; false when none comes.
  bool Receive(grpc::ByteBuffer& answer);
  void Cancel() { context_.TryCancel(); }
  // Tells how the call ended; called after Receive was false.
  grpc::Status Finish();

 private:
  bool Next() { return queue_.Next(&tag_, &ok_) && ok_; }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  void* tag_ = nullptr;
  bool ok_ = false;
};

// Reads a message of what came in; false where it is none.
bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::Message& message);

}  // namespace moeplan::client
