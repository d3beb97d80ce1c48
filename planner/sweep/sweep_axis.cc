#include "planner/sweep/sweep_axis.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>

#include "models/text.h"
#include "planner/sweep/cost_scaling.h"
#include "proto/enum_names.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kScalePaths[] = "cluster.nic.scale, collectives[NAME].timeScale, kernels[NAME].timeScale";

bool IsScalar(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

// The scalars below a message, as paths.
std::vector<std::string> ScalarsOf(const Descriptor& type, const std::string& path) {
  std::vector<std::string> paths;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string own = FieldPath(path, field.json_name());
    if (IsScalar(field)) paths.push_back(own);
    if (field.is_repeated() || IsScalar(field)) continue;
    std::ranges::copy(ScalarsOf(*field.message_type(), own), std::back_inserter(paths));
  }
  return paths;
}

const FieldDescriptor* FieldNamed(std::string_view json_name, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == json_name) return type.field(i);
  }
  return nullptr;
}

std::vector<std::string> SplitAt(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<double> FiniteNumber(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

// `text` as a JSON string. Bytes that JSON or UTF-8 do not know become '?'.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c >= ' ' && c <= '~' ? c : '?';
  }
  return quoted + '"';
}

SweepValue ValueOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return static_cast<double>(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*field.enum_type(), reflection.GetEnumValue(message, &field)).value_or("");
    default: return reflection.GetString(message, &field);
  }
}

void SetValue(Message& message, const FieldDescriptor& field, const SweepValue& value) {
  const auto& reflection = *message.GetReflection();
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

// The message that holds the last of `fields`.
Message& HolderOf(const std::vector<const FieldDescriptor*>& fields, Message& root) {
  Message* holder = &root;
  for (size_t i = 0; i + 1 < fields.size(); ++i) {
    holder = holder->GetReflection()->MutableMessage(holder, fields[i]);
  }
  return *holder;
}

template <typename Entries, typename Named>
void ScaleNamed(Entries& entries, Named named, double factor) {
  for (auto& entry : entries) {
    if (named(entry.key)) ScaleTime(entry.model, factor);
  }
}

}  // namespace

std::string TextOf(const SweepValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return StrCat(std::get<double>(value));
}

StatusOr<SweepAxis> SweepAxis::Parse(const std::string& text, const Profile& profile) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidInput(StrCat("--sweep: found '", text, "', expected PATH=VALUE,VALUE,..."));
  }
  SweepAxis axis;
  axis.path_ = text.substr(0, equals);
  RETURN_IF_ERROR(axis.ParsePath(profile).Within("--sweep"));
  const std::vector<std::string> values = SplitAt(std::string_view(text).substr(equals + 1), ',');
  if (values.size() > kMaxValues) {
    return InvalidInput(
        StrCat("--sweep: ", axis.path_, ": found ", values.size(), " values, expected at most ", kMaxValues));
  }
  for (const std::string& value : values) {
    StatusOr<SweepValue> parsed = axis.ParseValue(value);
    if (!parsed.ok()) return parsed.status().Within("--sweep");
    axis.values_.push_back(*std::move(parsed));
  }
  return axis;
}

Status SweepAxis::ParsePath(const Profile& profile) {
  const std::string_view path = path_;
  const size_t bracket = path.find('[');
  if (path == "cluster.nic.scale") {
    target_ = Target::kNic;
    return OkStatus();
  }
  if (const std::string_view list = path.substr(0, bracket); list == "collectives" || list == "kernels") {
    target_ = list == "kernels" ? Target::kKernel : Target::kCollective;
    const size_t end = path.find(']');
    if (bracket == std::string_view::npos || end == std::string_view::npos || path.substr(end) != "].timeScale") {
      return error::Mismatch(path_, "no entry and its timeScale", StrCat(list, "[NAME].timeScale"));
    }
    return ParseScaledName(path.substr(bracket + 1, end - bracket - 1), profile);
  }
  if (path.starts_with("cluster.")) {
    target_ = Target::kCluster;
    return ParseField(path.substr(path.find('.') + 1), *v1::Cluster::descriptor());
  }
  return ParseField(path, *v1::Workload::descriptor());
}

Status SweepAxis::ParseField(std::string_view path, const Descriptor& root) {
  const std::string prefix = target_ == Target::kCluster ? "cluster" : "";
  const Descriptor* type = &root;
  std::string at = prefix;
  for (const std::string& name : SplitAt(path, '.')) {
    const FieldDescriptor* field = type == nullptr ? nullptr : FieldNamed(name, *type);
    if (field == nullptr && type == nullptr) {
      return error::Mismatch(path_, StrCat("something below ", at, ", which is a single value"), at);
    }
    if (field == nullptr) {
      const Status unknown = error::UnknownField(at, name, *type);
      return InvalidInput(StrCat(unknown.message(), type == &root ? StrCat(", or ", kScalePaths) : ""));
    }
    fields_.push_back(field);
    at = FieldPath(at, name);
    type = IsScalar(*field) ? nullptr : field->message_type();
  }
  if (type == nullptr) return OkStatus();
  return error::Mismatch(path_, "an object", StrCat("one of its fields ", CommaList(ScalarsOf(*type, path_))));
}

Status SweepAxis::ParseScaledName(std::string_view name, const Profile& profile) {
  std::set<std::string> measured;
  const bool kernels = target_ == Target::kKernel;
  for (const KernelModel& entry : profile.kernels) {
    if (kernels) measured.emplace(Name(entry.key.kernel));
  }
  for (const CollectiveModel& entry : profile.collectives) {
    if (!kernels) measured.emplace(Name(entry.key.collective));
  }
  if (!measured.contains(std::string(name))) {
    const std::string there = CommaList({measured.begin(), measured.end()});
    return error::Mismatch(path_, name,
                           there.empty() ? "an entry of the profile, which has none" : StrCat("one of ", there));
  }
  if (kernels) {
    kernel_ = NamedValue<Kernel>(name).value_or(kernel_);
  } else {
    collective_ = NamedValue<Collective>(name).value_or(collective_);
  }
  return OkStatus();
}

StatusOr<SweepValue> SweepAxis::ParseValue(const std::string& text) const {
  if (text.empty()) return error::Mismatch(path_, "an empty value", "values between single commas");
  if (!scales()) return ParseFieldValue(text);
  constexpr double kMost = 1e9;
  const std::optional<double> number = FiniteNumber(text);
  if (number && *number >= 1 / kMost && *number <= kMost) return SweepValue(*number);
  return error::Mismatch(path_, text, "a number from 1e-9 to 1e9");
}

// Read as the JSON of a file with this field alone, so that it is refused in the same words.
StatusOr<SweepValue> SweepAxis::ParseFieldValue(const std::string& text) const {
  const FieldDescriptor& field = *fields_.back();
  const std::optional<double> number = FiniteNumber(text);
  const bool is_text =
      field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  std::string json = !is_text && number ? StrCat(*number) : !is_text && (text == "true" || text == "false") ? text : "";
  if (json.empty()) json = Quoted(text);
  for (size_t i = fields_.size(); i-- > 0;) json = StrCat("{\"", fields_[i]->json_name(), "\": ", json, "}");
  v1::Workload workload;
  v1::Cluster cluster;
  Message& root = target_ == Target::kCluster ? static_cast<Message&>(cluster) : workload;
  const Status status = ParseJson(json, "", root);
  if (!status.ok()) {
    const std::string_view message = status.message();  // Begins with the empty name of a file.
    return InvalidInput(
        StrCat(target_ == Target::kCluster ? "cluster." : "", message.substr(message.find_first_not_of(": "))));
  }
  return ValueOf(HolderOf(fields_, root), field);
}

void SweepAxis::Apply(size_t index, v1::Workload& workload, v1::Cluster& cluster) const {
  if (scales()) return;
  Message& root = target_ == Target::kCluster ? static_cast<Message&>(cluster) : workload;
  SetValue(HolderOf(fields_, root), *fields_.back(), values_[index]);
}

void SweepAxis::Apply(size_t index, Profile& profile) const {
  if (!scales()) return;
  const double factor = std::get<double>(values_[index]);
  switch (target_) {
    case Target::kNic: return ScaleNic(profile, factor);
    case Target::kCollective:
      return ScaleNamed(
          profile.collectives, [&](const CollectiveKey& key) { return key.collective == collective_; }, factor);
    case Target::kKernel:
      return ScaleNamed(
          profile.kernels, [&](const KernelKey& key) { return key.kernel == kernel_; }, factor);
    case Target::kWorkload:
    case Target::kCluster: return;
  }
}

}  // namespace moeplan
