#include "proto/convert/struct_text.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace moeplan {
namespace {

using Json = nlohmann::json;
using google::protobuf::Value;

constexpr double kMostExact = 9007199254740992;  // 2^53.
constexpr int kDeepest = 64;

Json JsonOf(const google::protobuf::Struct& object, int depth);

// What is nested deeper is left out: no configuration is, and the bytes may be anybody's.
Json JsonOf(const Value& value, int depth) {
  if (depth > kDeepest) return nullptr;
  switch (value.kind_case()) {
    case Value::kNumberValue:
      if (value.number_value() == std::floor(value.number_value()) && std::abs(value.number_value()) <= kMostExact)
        return static_cast<std::int64_t>(value.number_value());
      return value.number_value();
    case Value::kStringValue: return value.string_value();
    case Value::kBoolValue: return value.bool_value();
    case Value::kStructValue: return JsonOf(value.struct_value(), depth + 1);
    case Value::kListValue: {
      Json list = Json::array();
      for (const Value& item : value.list_value().values()) list.push_back(JsonOf(item, depth + 1));
      return list;
    }
    default: return nullptr;
  }
}

Json JsonOf(const google::protobuf::Struct& object, int depth) {
  Json json = Json::object();
  for (const auto& [key, value] : object.fields()) json[key] = JsonOf(value, depth);
  return json;
}

}  // namespace

std::string JsonTextOf(const google::protobuf::Struct& object) {
  return JsonOf(object, 0).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace moeplan
