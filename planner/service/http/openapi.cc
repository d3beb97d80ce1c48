#include "planner/service/http/openapi.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "models/check.h"
#include "models/text.h"
#include "planner/service/calls/method.h"
#include "proto/descriptors.h"

namespace moeplan::service::http {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::ordered_json;

// What stands above it, on one line.
template <typename Thing>
std::string CommentOf(const Thing& thing) {
  google::protobuf::SourceLocation location;
  if (!thing.GetSourceLocation(&location)) return "";
  std::string text = location.leading_comments;
  std::string joined;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t first = std::min(text.find_first_not_of(' ', begin), end);
    if (first < end) joined += (joined.empty() ? "" : " ") + text.substr(first, end - first);
    begin = end + 1;
  }
  return joined;
}

// "moeplan.v1.Schedule.Family" as "Schedule.Family".
std::string SchemaName(const Descriptor& message) {
  return message.full_name().substr(message.file()->package().size() + 1);
}

ordered_json Reference(const Descriptor& message) { return {{"$ref", "#/components/schemas/" + SchemaName(message)}}; }

// JSON that is no message of ours: any object, or any value.
bool IsForeign(const Descriptor& message) { return message.file()->name() == "google/protobuf/struct.proto"; }

class Schemas {
 public:
  // Has the message, and all that it is made of, described.
  void Add(const Descriptor& message) {
    if (!seen_.insert(&message).second) return;
    messages_.push_back(&message);
    if (IsForeign(message)) return;
    for (int i = 0; i < message.field_count(); ++i) {
      if (const Descriptor* const part = PartOf(*message.field(i))) Add(*part);
    }
  }

  ordered_json All() {
    std::sort(messages_.begin(), messages_.end(),
              [](const Descriptor* a, const Descriptor* b) { return a->full_name() < b->full_name(); });
    ordered_json all = ordered_json::object();
    for (const Descriptor* const message : messages_) all[SchemaName(*message)] = SchemaOf(*message);
    return all;
  }

 private:
  static const Descriptor* PartOf(const FieldDescriptor& field) {
    if (field.is_map()) return field.message_type()->map_value()->message_type();
    return field.message_type();
  }

  static ordered_json ScalarOf(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return {{"type", "integer"}, {"format", "int32"}};
      case FieldDescriptor::CPPTYPE_DOUBLE: return {{"type", "number"}, {"format", "double"}};
      case FieldDescriptor::CPPTYPE_BOOL: return {{"type", "boolean"}};
      case FieldDescriptor::CPPTYPE_ENUM: {
        ordered_json names = ordered_json::array();
        for (int i = 0; i < field.enum_type()->value_count(); ++i) names.push_back(field.enum_type()->value(i)->name());
        return {{"type", "string"}, {"enum", names}};
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: return Reference(*field.message_type());
      default: return {{"type", "string"}};
    }
  }

  static ordered_json TypeOf(const FieldDescriptor& field) {
    if (field.is_map()) {
      return {{"type", "object"}, {"additionalProperties", ScalarOf(*field.message_type()->map_value())}};
    }
    if (field.is_repeated()) return {{"type", "array"}, {"items", ScalarOf(field)}};
    return ScalarOf(field);
  }

  static ordered_json SchemaOf(const Descriptor& message) {
    if (IsForeign(message) && message.name() == "Struct") {
      return {{"type", "object"}, {"description", "Any JSON object."}, {"additionalProperties", true}};
    }
    if (IsForeign(message)) return {{"description", "Any JSON value."}};
    ordered_json properties = ordered_json::object();
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      ordered_json type = TypeOf(field);
      // Beside a reference nothing else counts, so that the comment needs a wrapping.
      if (type.contains("$ref")) type = {{"allOf", {type}}};
      type["description"] = CommentOf(field);
      properties[field.json_name()] = std::move(type);
    }
    return {{"type", "object"},
            {"description", CommentOf(message)},
            {"properties", std::move(properties)},
            {"additionalProperties", false}};
  }

  std::set<const Descriptor*> seen_;
  std::vector<const Descriptor*> messages_;
};

ordered_json JsonContent(ordered_json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

ordered_json ErrorSchema() {
  const ordered_json text = {{"type", "string"}};
  return {{"type", "object"},
          {"required", {"code", "message", "reason"}},
          {"properties",
           {{"code", {{"type", "string"}, {"description", "The gRPC status code, such as INVALID_ARGUMENT."}}},
            {"message", {{"type", "string"}, {"description", "What is wrong and what to do, for people."}}},
            {"reason", {{"type", "string"}, {"description", "Why, for programs, such as NO_TOKEN."}}},
            {"field", {{"type", "string"}, {"description", "The JSON path of the field that is wrong."}}},
            {"found", text},
            {"expected", text}}}};
}

ordered_json OperationOf(const Method& method, const google::protobuf::MethodDescriptor& described) {
  return {{"operationId", described.service()->name() + "." + described.name()},
          {"tags", {described.service()->name()}},
          {"description", StrCat(CommentOf(described), " Role: ", Name(method.role), ".")},
          {"requestBody", {{"required", true}, {"content", JsonContent(Reference(*described.input_type()))}}},
          {"responses",
           {{"200", {{"description", "The answer."}, {"content", JsonContent(Reference(*described.output_type()))}}},
            {"default",
             {{"description", "An error."}, {"content", JsonContent({{"$ref", "#/components/schemas/Error"}})}}}}},
          {"security", ordered_json::array({ordered_json::object(), {{"token", ordered_json::array()}}})}};
}

std::string Make() {
  Schemas schemas;
  ordered_json paths = ordered_json::object();
  for (const Method& method : Methods()) {
    std::string name = method.path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    const google::protobuf::MethodDescriptor* const described = ProtoFiles().FindMethodByName(name);
    MOEPLAN_CHECK(described != nullptr);
    schemas.Add(*described->input_type());
    schemas.Add(*described->output_type());
    paths[method.path] = {{"post", OperationOf(method, *described)}};
  }
  ordered_json components = {{"Error", ErrorSchema()}};
  components.update(schemas.All());
  const ordered_json document = {{"openapi", "3.0.3"},
                                 {"info", {{"title", "moeplan"}, {"version", MOEPLAN_VERSION}}},
                                 {"paths", std::move(paths)},
                                 {"components",
                                  {{"schemas", std::move(components)},
                                   {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return document.dump(1) + "\n";
}

}  // namespace

const std::string& OpenApi() {
  static const std::string document = Make();
  return document;
}

}  // namespace moeplan::service::http
