#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "models/text.h"
#include "proto/enum_names.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// As it stands between quotes.
bool IsPlain(char letter) { return letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\'; }

void AppendString(std::string& out, const std::string& text) {
  if (std::ranges::all_of(text, IsPlain)) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AppendDouble(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
  } else if (number == 0 && std::signbit(number)) {
    out += "-0.0";  // "-0" reads back as a whole number, which has no sign.
  } else {
    AppendPiece(out, number);
  }
}

class Writer {
 public:
  explicit Writer(JsonStyle style) : pretty_(style == JsonStyle::kPretty) {}

  std::string Finish() && {
    if (pretty_) out_ += '\n';
    return std::move(out_);
  }

  void Object(const Message& message) {
    Open('{');
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *message.GetDescriptor()->field(i);
      if (!IsPrinted(message, field)) continue;
      Key(field.json_name());
      Field(message, field);
    }
    Close('}');
  }

 private:
  static bool IsPrinted(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    if (field.is_map()) return reflection.FieldSize(message, &field) > 0;
    return field.is_repeated() || !field.has_presence() || reflection.HasField(message, &field);
  }

  void Field(const Message& message, const FieldDescriptor& field) {
    if (field.is_map()) {
      Map(message, field);
    } else if (field.is_repeated()) {
      List(message, field);
    } else {
      Single(message, field);
    }
  }

  void Map(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<std::pair<std::string, const Message*>> entries;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
      entries.emplace_back(entry.GetReflection()->GetString(entry, field.message_type()->map_key()), &entry);
    }
    std::sort(entries.begin(), entries.end());  // A map has no order of its own.
    Open('{');
    for (const auto& [key, entry] : entries) {
      Key(key);
      Single(*entry, *field.message_type()->map_value());
    }
    Close('}');
  }

  void List(const Message& message, const FieldDescriptor& field) {
    const bool one_line = field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    const int size = message.GetReflection()->FieldSize(message, &field);
    Open('[');
    for (int i = 0; i < size; ++i) {
      one_line ? Separate() : NextLine();
      Item(message, field, i);
    }
    one_line ? CloseHere(']') : Close(']');
  }

  void Single(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_DOUBLE: return AppendDouble(out_, reflection.GetDouble(message, &field));
      case FieldDescriptor::CPPTYPE_INT32: return AppendPiece(out_, reflection.GetInt32(message, &field));
      case FieldDescriptor::CPPTYPE_BOOL: return AppendPiece(out_, reflection.GetBool(message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        return AppendString(out_, reflection.GetStringReference(message, &field, &scratch_));
      case FieldDescriptor::CPPTYPE_ENUM: return Enum(field, reflection.GetEnumValue(message, &field));
      case FieldDescriptor::CPPTYPE_MESSAGE: return Child(reflection.GetMessage(message, &field));
      default: out_ += "null";  // The lint refuses such fields.
    }
  }

  void Item(const Message& message, const FieldDescriptor& field, int i) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_DOUBLE: return AppendDouble(out_, reflection.GetRepeatedDouble(message, &field, i));
      case FieldDescriptor::CPPTYPE_INT32: return AppendPiece(out_, reflection.GetRepeatedInt32(message, &field, i));
      case FieldDescriptor::CPPTYPE_BOOL: return AppendPiece(out_, reflection.GetRepeatedBool(message, &field, i));
      case FieldDescriptor::CPPTYPE_STRING:
        return AppendString(out_, reflection.GetRepeatedStringReference(message, &field, i, &scratch_));
      case FieldDescriptor::CPPTYPE_ENUM: return Enum(field, reflection.GetRepeatedEnumValue(message, &field, i));
      case FieldDescriptor::CPPTYPE_MESSAGE: return Child(reflection.GetRepeatedMessage(message, &field, i));
      default: out_ += "null";  // The lint refuses such fields.
    }
  }

  void Enum(const FieldDescriptor& field, int number) {
    if (const auto name = EnumName(*field.enum_type(), number)) {
      AppendString(out_, *name);
    } else {
      AppendPiece(out_, number);
    }
  }

  void Child(const Message& child) {
    if (const auto any = As<google::protobuf::Value>(child)) return Any(*any);
    if (const auto object = As<google::protobuf::Struct>(child)) return Foreign(*object);
    Object(child);
  }

  // The message as the generated type of that name; one that is made of descriptors is copied.
  template <typename Known>
  static std::optional<Known> As(const Message& message) {
    if (message.GetDescriptor()->full_name() != Known::descriptor()->full_name()) return std::nullopt;
    if (const auto* known = dynamic_cast<const Known*>(&message)) return *known;
    Known known;
    known.ParseFromString(message.SerializeAsString());
    return known;
  }

  void Any(const google::protobuf::Value& any) {
    switch (any.kind_case()) {
      case google::protobuf::Value::kNumberValue: return AppendDouble(out_, any.number_value());
      case google::protobuf::Value::kStringValue: return AppendString(out_, any.string_value());
      case google::protobuf::Value::kBoolValue: return AppendPiece(out_, any.bool_value());
      case google::protobuf::Value::kStructValue: return Foreign(any.struct_value());
      case google::protobuf::Value::kListValue: return Foreign(any.list_value());
      default: out_ += "null";
    }
  }

  void Foreign(const google::protobuf::Struct& object) {
    std::vector<const std::string*> keys;
    for (const auto& [key, value] : object.fields()) keys.push_back(&key);
    std::ranges::sort(keys, {}, [](const std::string* key) -> const std::string& { return *key; });
    Open('{');
    for (const std::string* key : keys) {
      Key(*key);
      Any(object.fields().at(*key));
    }
    Close('}');
  }

  void Foreign(const google::protobuf::ListValue& list) {
    Open('[');
    for (const google::protobuf::Value& value : list.values()) {
      NextLine();
      Any(value);
    }
    Close(']');
  }

  void Open(char bracket) {
    out_ += bracket;
    ++depth_;
    is_first_ = true;
  }
  void Close(char bracket) {
    --depth_;
    if (!is_first_) Break();
    out_ += bracket;
    is_first_ = false;
  }
  void CloseHere(char bracket) {
    --depth_;
    out_ += bracket;
    is_first_ = false;
  }
  void Key(const std::string& name) {
    NextLine();
    AppendString(out_, name);
    out_ += pretty_ ? ": " : ":";
  }
  void NextLine() {
    if (!is_first_) out_ += ',';
    is_first_ = false;
    Break();
  }
  void Separate() {
    if (!is_first_) out_ += pretty_ ? ", " : ",";
    is_first_ = false;
  }
  void Break() {
    if (!pretty_) return;
    out_ += '\n';
    out_.append(2 * depth_, ' ');
  }

  const bool pretty_;
  std::string out_, scratch_;
  size_t depth_ = 0;
  bool is_first_ = true;
};

}  // namespace

std::string ToJson(const Message& message, JsonStyle style) {
  Writer writer(style);
  writer.Object(message);
  return std::move(writer).Finish();
}

}  // namespace moeplan
