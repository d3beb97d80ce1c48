#include "planner/client/exchange.h"

#include "planner/client/channel.h"

namespace moeplan::client {

Exchange::Exchange(const std::shared_ptr<grpc::Channel>& channel, const ConnectOptions& options,
                   const std::string& path)
    : stub_(channel) {
  SetUp(context_, options);
  call_ = stub_.PrepareCall(&context_, path, &queue_);
  call_->StartCall(nullptr);
  Next();
}

Exchange::~Exchange() {
  context_.TryCancel();
  queue_.Shutdown();
  while (queue_.Next(&tag_, &ok_)) continue;
}

void Exchange::Send(const google::protobuf::Message& request) {
  const grpc::Slice slice(request.SerializeAsString());
  call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
  Next();
}

bool Exchange::Receive(grpc::ByteBuffer& answer) {
  call_->Read(&answer, nullptr);
  return Next();
}

grpc::Status Exchange::Finish() {
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Next();
  return status;
}

bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok() && !buffer.DumpToSingleSlice(&slice).ok()) return false;
  return message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

}  // namespace moeplan::client
