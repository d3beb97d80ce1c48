#include "planner/sweep/scalar_path.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "models/text.h"
#include "planner/sweep/texts.h"
#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan::planner {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::OneofDescriptor;

bool IsMessage(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }

const FieldDescriptor* FieldNamed(std::string_view json_name, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == json_name) return type.field(i);
  }
  return nullptr;
}

// The scalars below a message, as paths; of lists none.
std::vector<std::string> ScalarsOf(const Descriptor& type, const std::string& path) {
  std::vector<std::string> paths;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string own = FieldPath(path, field.json_name());
    if (field.is_repeated()) continue;
    if (IsMessage(field)) {
      std::ranges::copy(ScalarsOf(*field.message_type(), own), std::back_inserter(paths));
    } else {
      paths.push_back(own);
    }
  }
  return paths;
}

// Of a cost model with a curve, the line beside it is for reading.
bool Prices(const Message& holder, const FieldDescriptor& field) {
  const OneofDescriptor* curve = holder.GetDescriptor()->FindOneofByName("curve");
  return curve == nullptr || field.json_name() != "alphaBeta" || !holder.GetReflection()->HasOneof(holder, curve);
}

// What an item says of itself, as paths from it; of lists the first item.
void AddSaid(const Message& message, const std::string& path, std::vector<std::string>& paths) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (!Prices(message, *field)) continue;
    std::string own = FieldPath(path, field->json_name());
    if (field->is_repeated()) own = ItemPath(own, 0);
    if (!IsMessage(*field)) {
      paths.push_back(own);
    } else if (field->is_repeated()) {
      AddSaid(reflection.GetRepeatedMessage(message, field, 0), own, paths);
    } else {
      AddSaid(reflection.GetMessage(message, field), own, paths);
    }
  }
}

// `text` as a JSON string; nothing where it is not UTF-8.
std::optional<std::string> Quoted(const std::string& text) {
  constexpr std::string_view kReplacement = "\uFFFD";
  using Json = nlohmann::json;
  std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  const bool replaced = quoted.find(kReplacement) != std::string::npos && text.find(kReplacement) == std::string::npos;
  return replaced ? std::nullopt : std::optional(std::move(quoted));
}

SweepValue ValueOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.GetRepeatedDouble(message, &field, 0);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return static_cast<double>(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*field.enum_type(), reflection.GetEnumValue(message, &field)).value_or("");
    default: return reflection.GetString(message, &field);
  }
}

void SetValue(Message& message, const FieldDescriptor& field, int item, const SweepValue& value) {
  const auto& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.SetRepeatedDouble(&message, &field, item, std::get<double>(value));
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, static_cast<int>(std::get<double>(value)));
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.SetDouble(&message, &field, std::get<double>(value));
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.SetBool(&message, &field, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field,
                                     EnumNumber(*field.enum_type(), std::get<std::string>(value)).value_or(0));
    default: return reflection.SetString(&message, &field, std::get<std::string>(value));
  }
}

// The enum that an entry of a profile is named by; null for the items of other lists.
const FieldDescriptor* NameField(const FieldDescriptor& list) {
  const std::string& name = list.json_name();
  if (!IsMessage(list) || (name != "collectives" && name != "kernels")) return nullptr;
  return FieldNamed(name == "kernels" ? "kernel" : "collective", *list.message_type());
}

}  // namespace

std::string TextOf(const SweepValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return StrCat(std::get<double>(value));
}

StatusOr<std::vector<int>> NamedEntries(const std::string& path, const FieldDescriptor& list,
                                        const std::string& selector, const Message& profile) {
  const auto& reflection = *profile.GetReflection();
  const int size = reflection.FieldSize(profile, &list);
  if (const auto number = NumberOf<int>(selector)) {
    if (*number >= 0 && *number < size && selector == StrCat(*number)) return std::vector<int>{*number};
    return error::Mismatch(path, StrCat(list.json_name(), "[", selector, "]"),
                           size == 0 ? "none, as the list is empty" : StrCat("an item from 0 to ", size - 1));
  }
  const FieldDescriptor* name = NameField(list);
  if (name == nullptr) return error::Mismatch(path, StrCat("[", selector, "]"), "the number of an item, from 0");
  std::vector<int> chosen;
  std::set<std::string> there;
  for (int i = 0; i < size; ++i) {
    const SweepValue own = ValueOf(reflection.GetRepeatedMessage(profile, &list, i), *name);
    there.insert(TextOf(own));
    if (TextOf(own) == selector) chosen.push_back(i);
  }
  if (!chosen.empty()) return chosen;
  return error::Mismatch(
      path, selector.empty() ? "an empty name" : selector,
      there.empty() ? "an entry of the profile, which has none"
                    : StrCat("one of ", CommaList({there.begin(), there.end()}), ", or the number of an entry"));
}

// Goes down a path, name by name, on all its ways at once.
class ScalarPath::Reader {
 public:
  Reader(const std::string& path, const Message& root)
      : path_(path), type_(root.GetDescriptor()), ways_{{.at = &root}} {}

  StatusOr<ScalarPath> Read() {
    for (const std::string& name : SplitAt(path_, '.')) RETURN_IF_ERROR(Enter(name));
    if (type_ != nullptr) {
      return error::Mismatch(path_, "an object", StrCat("one of its fields ", CommaList(ScalarsOf(*type_, path_))));
    }
    ScalarPath path;
    path.holder_ = holder_;
    path.left_out_ = std::move(left_out_);
    for (Way& way : ways_) path.ways_.push_back(std::move(way.steps));
    return path;
  }

 private:
  struct Way {
    std::vector<Step> steps;
    const Message* at = nullptr;  // Null below what the root does not say.
    bool in_item = false;         // Of a list.
  };

  Status Enter(const std::string& name) {
    const std::string field_name = name.substr(0, name.find('['));
    if (type_ == nullptr) {
      return error::Mismatch(path_, StrCat("something below ", at_, ", which is a single value"), at_);
    }
    if (name.empty()) return error::Mismatch(path_, "an empty name", "names between single dots");
    const FieldDescriptor* field = FieldNamed(field_name, *type_);
    if (field == nullptr) return error::UnknownField(at_, field_name, *type_);
    holder_ = at_;
    at_ = FieldPath(at_, name);
    RETURN_IF_ERROR(field->is_repeated() ? EnterItems(*field, name) : EnterField(*field, name));
    type_ = IsMessage(*field) ? field->message_type() : nullptr;
    return OkStatus();
  }

  Status EnterField(const FieldDescriptor& field, const std::string& name) {
    if (name != field.json_name()) return error::Mismatch(path_, name, StrCat(field.json_name(), ", which is no list"));
    std::vector<Way> said, left;
    for (Way& way : ways_) (way.in_item && !Says(*way.at, field) ? left : said).push_back(std::move(way));
    if (said.empty()) return NobodySays(left.front(), field);
    ways_ = std::move(said);
    for (const Way& way : left) Leave(way);
    for (Way& way : ways_) {
      way.steps.push_back({&field});
      if (!IsMessage(field) || way.at == nullptr) continue;
      const auto& reflection = *way.at->GetReflection();
      way.at = reflection.HasField(*way.at, &field) ? &reflection.GetMessage(*way.at, &field) : nullptr;
    }
    return OkStatus();
  }

  // Whether it can be set without another thing being unsaid or left without effect.
  static bool Says(const Message& holder, const FieldDescriptor& field) {
    const auto& reflection = *holder.GetReflection();
    if (!Prices(holder, field)) return false;
    if (IsMessage(field)) return reflection.HasField(holder, &field);
    const OneofDescriptor* choice = field.real_containing_oneof();
    return choice == nullptr || !reflection.HasOneof(holder, choice) || reflection.HasField(holder, &field);
  }

  Status NobodySays(const Way& way, const FieldDescriptor& field) const {
    std::vector<std::string> said;
    AddSaid(*way.at, "", said);
    const char* lacks = Prices(*way.at, field) ? "an entry without " : "an entry that does not plan by ";
    return error::Mismatch(path_, StrCat(lacks, field.json_name()),
                           StrCat("after ", holder_, " one of ", CommaList(said)));
  }

  void Leave(const Way& way) {
    const std::string entry = ItemPath(way.steps.front().field->json_name(), way.steps.front().item);
    if (left_out_.empty() || left_out_.back() != entry) left_out_.push_back(entry);
  }

  Status EnterItems(const FieldDescriptor& field, const std::string& name) {
    const size_t open = name.find('[');
    if (open == std::string::npos || name.back() != ']') {
      const std::string item = StrCat(field.json_name(), "[NUMBER]");
      return error::Mismatch(path_, "a list",
                             NameField(field) == nullptr ? item : StrCat(item, " or ", field.json_name(), "[NAME]"));
    }
    const std::string selector = name.substr(open + 1, name.size() - open - 2);
    std::vector<Way> inside, left;
    Status refused = OkStatus();
    for (const Way& way : ways_) {
      if (way.at == nullptr) {
        refused = error::Mismatch(path_, StrCat(holder_, ", which is not said"), "a list that the file has");
        continue;
      }
      StatusOr<std::vector<int>> items = NamedEntries(path_, field, selector, *way.at);
      if (!items.ok()) {
        refused = items.status();
        left.push_back(way);
        continue;
      }
      for (const int item : *items) {
        Way& entered = inside.emplace_back(way);
        entered.steps.push_back({&field, item});
        entered.in_item = true;
        if (IsMessage(field)) entered.at = &way.at->GetReflection()->GetRepeatedMessage(*way.at, &field, item);
      }
    }
    if (inside.empty()) return refused;
    for (const Way& way : left) Leave(way);
    ways_ = std::move(inside);
    return OkStatus();
  }

  const std::string& path_;
  const Descriptor* type_;  // Null at a scalar.
  std::string at_, holder_;
  std::vector<Way> ways_;
  std::vector<std::string> left_out_;
};

StatusOr<ScalarPath> ScalarPath::Parse(const std::string& path, const Message& root) {
  return Reader(path, root).Read();
}

StatusOr<SweepValue> ScalarPath::ParseValue(const std::string& text) const {
  const FieldDescriptor& field = *ways_.front().back().field;
  const std::optional<double> number = NumberOf<double>(text);
  const bool is_text =
      field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  const std::optional<std::string> quoted = Quoted(text);
  if (!quoted) return error::Mismatch(FieldPath(holder_, field.json_name()), "bytes that are no UTF-8", "text");
  const bool is_literal = !is_text && ((number && std::isfinite(*number)) || text == "true" || text == "false");
  std::string json = !is_literal ? *quoted : number ? StrCat(*number) : text;
  if (field.is_repeated()) json = StrCat("[", json, "]");
  const std::unique_ptr<Message> holder(
      MessageFactory::generated_factory()->GetPrototype(field.containing_type())->New());
  const Status status = ParseJson(StrCat("{\"", field.json_name(), "\": ", json, "}"), "", *holder);
  if (status.ok()) return ValueOf(*holder, field);
  std::string message(status.message());
  message.erase(0, message.find_first_not_of(": "));  // The empty name of a file.
  const std::string first = ItemPath(field.json_name(), 0);
  if (field.is_repeated() && message.starts_with(first)) {
    message.replace(0, first.size(), ItemPath(field.json_name(), ways_.front().back().item));
  }
  return InvalidInput(FieldPath(holder_, message));
}

bool ScalarPath::Meets(const ScalarPath& other) const {
  return std::ranges::any_of(ways_,
                             [&](const auto& way) { return std::ranges::find(other.ways_, way) != other.ways_.end(); });
}

void ScalarPath::Set(Message& root, const SweepValue& value) const {
  for (const std::vector<Step>& way : ways_) {
    Message* holder = &root;
    for (size_t i = 0; i + 1 < way.size(); ++i) {
      const auto& [field, item] = way[i];
      const auto& reflection = *holder->GetReflection();
      holder = field->is_repeated() ? reflection.MutableRepeatedMessage(holder, field, item)
                                    : reflection.MutableMessage(holder, field);
    }
    SetValue(*holder, *way.back().field, way.back().item, value);
  }
}

}  // namespace moeplan::planner
