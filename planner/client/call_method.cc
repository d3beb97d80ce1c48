#include "planner/client/call_method.h"

#include <google/protobuf/dynamic_message.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "models/text.h"
#include "planner/client/channel.h"
#include "planner/client/errors.h"
#include "planner/client/exchange.h"
#include "proto/descriptors.h"
#include "proto/errors.h"
#include "proto/grpc_status.h"
#include "proto/json.h"

namespace moeplan::client {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

// Names the method as gRPC does, such as "moeplan.v1.PlannerService/Plan".
std::string NameOf(const MethodDescriptor& method) { return StrCat(method.service()->full_name(), "/", method.name()); }

// Tells whether `given` is the name, or its end after a '.' or '/'.
bool Names(std::string_view given, const std::string& name) {
  if (given.starts_with('/')) given.remove_prefix(1);
  if (given.empty() || given.size() > name.size() || !std::string_view(name).ends_with(given)) return false;
  return given.size() == name.size() ||
         std::string_view("./").find(name[name.size() - given.size() - 1]) != std::string_view::npos;
}

StatusOr<const MethodDescriptor*> FindMethod(std::string_view given) {
  std::vector<const MethodDescriptor*> found;
  std::vector<std::string> names;
  for (const MethodDescriptor* const method : AllMethods()) {
    if (method->client_streaming()) continue;  // One JSON object is all there is to send.
    names.push_back(method->service()->name() + "/" + method->name());
    if (Names(given, NameOf(*method))) found.push_back(method);
  }
  if (found.size() != 1) return client::error::NoMethod(given, CommaList(names));
  return found.front();
}

}  // namespace

Status CallMethod(const ConnectOptions& options, std::string_view name, std::string_view json,
                  const std::function<bool(const Message& answer, bool streamed)>& answer) {
  ASSIGN_OR_RETURN(const MethodDescriptor* const method, FindMethod(name));
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<Message> request(factory.GetPrototype(method->input_type())->New());
  RETURN_IF_ERROR(ParseJson(json, "JSON", *request));
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, client::OpenChannel(options));
  client::Exchange exchange(channel, options, "/" + NameOf(*method));
  exchange.Send(*request);
  const std::unique_ptr<Message> received(factory.GetPrototype(method->output_type())->New());
  for (grpc::ByteBuffer bytes; exchange.Receive(bytes);) {
    if (!client::Parse(bytes, *received))
      return InternalError(StrCat(options.address, " answered with what is no ", method->output_type()->full_name()));
    if (answer(*received, method->server_streaming())) continue;
    exchange.Cancel();
    return OkStatus();
  }
  const grpc::Status ended = exchange.Finish();
  return ended.ok() ? OkStatus() : FromGrpc(ended);
}

}  // namespace moeplan::client
