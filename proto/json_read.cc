#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using Json = nlohmann::json;

constexpr size_t kMaxQuoted = 120;

// At most kMaxQuoted bytes of foreign text, made valid UTF-8.
std::string Quotable(std::string_view text) {
  std::string head(text.substr(0, kMaxQuoted));
  if (text.size() > kMaxQuoted) head += "...";
  return Json::parse(Json(head).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string Found(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return StrCat("the string \"", Quotable(value.get_ref<const std::string&>()), "\"");
    case Json::value_t::number_float: return StrCat(value.get<double>());
    default: return value.dump();
  }
}

// ---- Text to a tree of values.

// Where the parser is, and which keys it has seen there.
struct OpenValue {
  bool is_list = false;
  size_t index = 0;
  std::string key;
  std::set<std::string> keys;
};

// Leaves the parser from inside its callback; never leaves ParseTree.
struct Refused {
  Status status;
};

class TreeGuard {
 public:
  // Watches one parse: always keeps the value, and throws Refused at a duplicate key or when too deep.
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start: Open(depth, /*is_list=*/false); break;
      case Json::parse_event_t::array_start: Open(depth, /*is_list=*/true); break;
      case Json::parse_event_t::key: Enter(parsed.get_ref<const std::string&>()); break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        Advance();
        break;
      case Json::parse_event_t::value: Advance(); break;
    }
    return true;
  }

  std::string Path() const {
    std::string path;
    for (const OpenValue& value : open_) {
      if (value.is_list) {
        path = ItemPath(path, value.index);
      } else if (!value.key.empty()) {
        path = FieldPath(path, Quotable(value.key));
      }
    }
    return path;
  }

 private:
  void Open(int depth, bool is_list) {
    if (depth >= kMaxJsonDepth) {
      throw Refused{error::Mismatch(Quotable(Path()), StrCat("more than ", kMaxJsonDepth, " nested values"), "fewer")};
    }
    open_.push_back({.is_list = is_list});
  }
  void Enter(const std::string& key) {
    OpenValue& object = open_.back();
    object.key = key;
    if (!object.keys.insert(key).second) throw Refused{error::Mismatch(Path(), "the key twice", "it once")};
  }
  void Advance() {
    if (!open_.empty() && open_.back().is_list) ++open_.back().index;
  }

  std::vector<OpenValue> open_;
};

// "line 3, column 7" of the byte before `end`.
std::string LineAndColumn(std::string_view text, size_t end) {
  const std::string_view before = text.substr(0, end == 0 ? 0 : std::min(end - 1, text.size()));
  const size_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  return StrCat("line ", line, ", column ", column);
}

// The library's sentence without its prefix "[json.exception...] parse error at line 1, column 2: ".
std::string Complaint(std::string_view what) {
  constexpr std::string_view kBeforeReason = "column ";
  const size_t column = what.find(kBeforeReason);
  const size_t reason = column == std::string_view::npos ? column : what.find(": ", column);
  return Quotable(reason == std::string_view::npos ? what : what.substr(reason + 2));
}

StatusOr<Json> ParseTree(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return error::Mismatch("", StrCat(text.size(), " bytes"), StrCat("at most ", kMaxJsonBytes));
  }
  TreeGuard guard;
  try {
    return Json::parse(text.begin(), text.end(), std::ref(guard));
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const Json::parse_error& error) {
    return error::Mismatch(LineAndColumn(text, error.byte), StrCat("no JSON: ", Complaint(error.what())),
                           "one JSON object");
  } catch (const Json::out_of_range&) {
    return error::Mismatch(guard.Path(), "a number beyond the range of a double", "a finite number");
  }
}

// ---- A tree of values to a message. The two are walked together, so that every error knows its path.

Status FillMessage(const Json& object, const std::string& path, Message& message);

StatusOr<double> AsDouble(const Json& value, const std::string& path) {
  if (!value.is_number()) return error::Mismatch(path, Found(value), "a number");
  // The library takes "-0" for a signed integer; every other zero is unsigned or has a point.
  if (value.type() == Json::value_t::number_integer && value == 0) return -0.0;
  return value.get<double>();
}

StatusOr<int32_t> AsInt32(const Json& value, const std::string& path) {
  constexpr double kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
  if (!value.is_number()) return error::Mismatch(path, Found(value), "a whole number");
  const double number = value.get<double>();
  if (number != std::floor(number)) return error::Mismatch(path, Found(value), "a whole number");
  if (number < kLow || number > kHigh) {
    return error::Mismatch(path, Found(value), "a whole number from -2147483648 to 2147483647");
  }
  return static_cast<int32_t>(number);
}

StatusOr<bool> AsBool(const Json& value, const std::string& path) {
  if (!value.is_boolean()) return error::Mismatch(path, Found(value), "true or false");
  return value.get<bool>();
}

StatusOr<std::string> AsString(const Json& value, const std::string& path) {
  if (!value.is_string()) return error::Mismatch(path, Found(value), "a string");
  return value.get<std::string>();
}

StatusOr<int> AsEnum(const Json& value, const std::string& path, const FieldDescriptor& field) {
  const std::optional<int> number =
      value.is_string() ? EnumNumber(*field.enum_type(), value.get_ref<const std::string&>()) : std::nullopt;
  if (!number) return error::UnknownEnum(path, Found(value), *field.enum_type());
  return *number;
}

Status FillAny(const Json& value, const std::string& path, google::protobuf::Value& any) {
  if (value.is_number()) {
    any.set_number_value(value.get<double>());
  } else if (value.is_string()) {
    any.set_string_value(value.get<std::string>());
  } else if (value.is_boolean()) {
    any.set_bool_value(value.get<bool>());
  } else {
    return error::Mismatch(path, Found(value), "a number, a string, true or false");
  }
  return OkStatus();
}

// Foreign JSON as it stands, lists and objects and null in it.
void FillForeign(const Json& value, google::protobuf::Value& any) {
  switch (value.type()) {
    case Json::value_t::null: any.set_null_value(google::protobuf::NULL_VALUE); break;
    case Json::value_t::string: any.set_string_value(value.get<std::string>()); break;
    case Json::value_t::boolean: any.set_bool_value(value.get<bool>()); break;
    case Json::value_t::array:
      any.mutable_list_value();
      for (const Json& item : value) FillForeign(item, *any.mutable_list_value()->add_values());
      break;
    case Json::value_t::object:
      any.mutable_struct_value();
      for (const auto& [key, item] : value.items())
        FillForeign(item, (*any.mutable_struct_value()->mutable_fields())[key]);
      break;
    default: any.set_number_value(value.get<double>());
  }
}

Status FillStruct(const Json& value, const std::string& path, google::protobuf::Struct& object) {
  if (!value.is_object()) return error::Mismatch(path, Found(value), "an object");
  for (const auto& [key, item] : value.items()) FillForeign(item, (*object.mutable_fields())[key]);
  return OkStatus();
}

template <typename Known>
bool IsA(const Message& message) {
  return message.GetDescriptor()->full_name() == Known::descriptor()->full_name();
}

// Fills a message of that name, whether it is of the generated type or made of descriptors.
template <typename Known>
Status FillKnown(const Json& value, const std::string& path, Message& child,
                 Status (*fill)(const Json&, const std::string&, Known&)) {
  if (auto* known = dynamic_cast<Known*>(&child)) return fill(value, path, *known);
  Known known;
  RETURN_IF_ERROR(fill(value, path, known));
  child.ParseFromString(known.SerializeAsString());
  return OkStatus();
}

Status FillChild(const Json& value, const std::string& path, Message& child) {
  using google::protobuf::Struct, google::protobuf::Value;
  if (IsA<Value>(child)) return FillKnown<Value>(value, path, child, FillAny);
  if (IsA<Struct>(child)) return FillKnown<Struct>(value, path, child, FillStruct);
  return FillMessage(value, path, child);
}

// Sets a singular field or appends to a repeated one.
Status FillScalarOrMessage(const Json& value, const std::string& path, const FieldDescriptor& field, Message& message) {
  const auto& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto add, auto item) {
    field.is_repeated() ? (reflection.*add)(&message, &field, item) : (reflection.*set)(&message, &field, item);
    return OkStatus();
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      ASSIGN_OR_RETURN(const double number, AsDouble(value, path));
      return put(&R::SetDouble, &R::AddDouble, number);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      ASSIGN_OR_RETURN(const int32_t number, AsInt32(value, path));
      return put(&R::SetInt32, &R::AddInt32, number);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      ASSIGN_OR_RETURN(const bool truth, AsBool(value, path));
      return put(&R::SetBool, &R::AddBool, truth);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      ASSIGN_OR_RETURN(const std::string text, AsString(value, path));
      return put(&R::SetString, &R::AddString, text);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      ASSIGN_OR_RETURN(const int number, AsEnum(value, path, field));
      return put(&R::SetEnumValue, &R::AddEnumValue, number);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      return FillChild(value, path,
                       field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                           : *reflection.MutableMessage(&message, &field));
    }
    default: return InternalError(StrCat(path, ": a field type that files do not have"));  // The lint refuses them.
  }
}

Status FillList(const Json& list, const std::string& path, const FieldDescriptor& field, Message& message) {
  if (!list.is_array()) return error::Mismatch(path, Found(list), "a list");
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(FillScalarOrMessage(list[i], ItemPath(path, i), field, message));
  }
  return OkStatus();
}

Status FillMap(const Json& object, const std::string& path, const FieldDescriptor& field, Message& message) {
  if (!object.is_object()) return error::Mismatch(path, Found(object), "an object");
  for (const auto& [key, value] : object.items()) {
    Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    entry.GetReflection()->SetString(&entry, field.message_type()->map_key(), key);
    RETURN_IF_ERROR(FillScalarOrMessage(value, FieldPath(path, key), *field.message_type()->map_value(), entry));
  }
  return OkStatus();
}

Status FillField(const Json& value, const std::string& path, const FieldDescriptor& field, Message& message) {
  if (field.is_map()) return FillMap(value, path, field, message);
  if (field.is_repeated()) return FillList(value, path, field, message);
  return FillScalarOrMessage(value, path, field, message);
}

const FieldDescriptor* FieldNamed(std::string_view json_name, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == json_name) return type.field(i);
  }
  return nullptr;
}

Status CheckAlternatives(const FieldDescriptor& field, const std::string& path, const Message& message) {
  const OneofDescriptor* choice = field.real_containing_oneof();
  if (choice == nullptr || !message.GetReflection()->HasOneof(message, choice)) return OkStatus();
  std::vector<std::string> names;
  for (int i = 0; i < choice->field_count(); ++i) names.push_back(choice->field(i)->json_name());
  const std::string& first = message.GetReflection()->GetOneofFieldDescriptor(message, choice)->json_name();
  return error::Mismatch(path, StrCat("both ", first, " and ", field.json_name()),
                         StrCat("at most one of ", CommaList(names)));
}

Status FillMessage(const Json& object, const std::string& path, Message& message) {
  if (!object.is_object()) return error::Mismatch(path, Found(object), "an object");
  for (const auto& [key, value] : object.items()) {
    const FieldDescriptor* field = FieldNamed(key, *message.GetDescriptor());
    if (field == nullptr) return error::UnknownField(path, Quotable(key), *message.GetDescriptor());
    if (value.is_null()) continue;
    RETURN_IF_ERROR(CheckAlternatives(*field, path, message));
    RETURN_IF_ERROR(FillField(value, FieldPath(path, key), *field, message));
  }
  return OkStatus();
}

}  // namespace

Status ParseJson(std::string_view text, std::string_view source_name, Message& message) {
  message.Clear();
  const StatusOr<Json> tree = ParseTree(text);
  if (!tree.ok()) return tree.status().Within(source_name);
  return FillMessage(*tree, "", message).Within(source_name);
}

StatusOr<std::string> ReadTextFile(const std::string& path, std::string_view expected) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidInput(StrCat(path, ": found a directory, expected a file"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return InvalidInput(StrCat(path, ": found no readable file (", std::strerror(errno), "), expected ", expected));
  std::string text;
  char block[1 << 16];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxJsonBytes) {
      return InvalidInput(StrCat(path, ": found more than ", kMaxJsonBytes, " bytes, expected at most that many"));
    }
  }
  if (file.bad())
    return InvalidInput(StrCat(path, ": found a file that breaks off while it is read, expected ", expected));
  return text;
}

}  // namespace moeplan
