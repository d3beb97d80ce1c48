#include "planner/client/answer_printer.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/unknown_field_set.h>

#include <utility>
#include <vector>

#include "models/text.h"
#include "moeplan/rpc/reflection.pb.h"
#include "planner/client/channel.h"
#include "planner/client/exchange.h"
#include "proto/grpc_status.h"

namespace moeplan::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool HasUnknown(const Message& message);

bool HasUnknown(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const int size = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
  for (int i = 0; i < size; ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (HasUnknown(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, i)
                                         : reflection.GetMessage(message, &field))) {
        return true;
      }
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const int number = field.is_repeated() ? reflection.GetRepeatedEnumValue(message, &field, i)
                                             : reflection.GetEnumValue(message, &field);
      if (field.enum_type()->FindValueByNumber(number) == nullptr) return true;
    }
  }
  return false;
}

// Tells whether a field, or the name of an enum's value, is not known here.
bool HasUnknown(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (HasUnknown(message, *field)) return true;
  }
  return false;
}

}  // namespace

struct AnswerPrinter::PlannerTypes {
  google::protobuf::SimpleDescriptorDatabase files;
  google::protobuf::DescriptorPool pool{&files};
  google::protobuf::DynamicMessageFactory messages{&pool};
};

AnswerPrinter::AnswerPrinter(ConnectOptions planner) : planner_(std::move(planner)) {}
AnswerPrinter::~AnswerPrinter() = default;

std::string AnswerPrinter::Json(const Message& answer, JsonStyle style) {
  if (!HasUnknown(answer)) return ToJson(answer, style);
  const std::unique_ptr<Message> whole = AsPlannerKnows(answer);
  return ToJson(whole != nullptr ? *whole : answer, style);
}

std::unique_ptr<Message> AnswerPrinter::AsPlannerKnows(const Message& answer) {
  const std::string& type = answer.GetDescriptor()->full_name();
  if (types_ == nullptr && left_out_.ok()) left_out_ = LearnTypes(type);
  if (types_ == nullptr) return nullptr;
  const google::protobuf::Descriptor* const known = types_->pool.FindMessageTypeByName(type);
  std::unique_ptr<Message> whole;
  if (known != nullptr) whole.reset(types_->messages.GetPrototype(known)->New());
  if (whole == nullptr || !whole->ParseFromString(answer.SerializeAsString())) {
    left_out_ = InternalError(StrCat("what the planner at ", planner_.address, " says of ", type, " does not fit"));
    return nullptr;
  }
  return whole;
}

Status AnswerPrinter::LearnTypes(const std::string& type) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, client::OpenChannel(planner_));
  client::Exchange exchange(channel, planner_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  rpc::ReflectionRequest request;
  request.set_file_containing_symbol(type);
  exchange.Send(request);
  grpc::ByteBuffer bytes;
  if (!exchange.Receive(bytes)) return FromGrpc(exchange.Finish());
  rpc::ReflectionResponse response;
  if (!client::Parse(bytes, response) || !response.has_files()) {
    return Unavailable(StrCat("the planner at ", planner_.address, " does not know ", type));
  }
  auto types = std::make_unique<PlannerTypes>();
  for (const std::string& file : response.files().descriptors()) {
    google::protobuf::FileDescriptorProto descriptor;
    if (descriptor.ParseFromString(file)) types->files.Add(descriptor);
  }
  types_ = std::move(types);
  return OkStatus();
}

}  // namespace moeplan::client
