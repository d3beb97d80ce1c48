#include "proto/grpc_status.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "moeplan/rpc/error_details.pb.h"

namespace moeplan {
namespace {

constexpr std::pair<StatusCode, grpc::StatusCode> kBothWays[] = {
    {StatusCode::kOk, grpc::OK},
    {StatusCode::kInvalidInput, grpc::INVALID_ARGUMENT},
    {StatusCode::kNotFound, grpc::NOT_FOUND},
    {StatusCode::kInfeasible, grpc::FAILED_PRECONDITION},
    {StatusCode::kUnavailable, grpc::UNAVAILABLE},
    {StatusCode::kDeadlineExceeded, grpc::DEADLINE_EXCEEDED},
    {StatusCode::kPermissionDenied, grpc::PERMISSION_DENIED},
    {StatusCode::kDataLoss, grpc::DATA_LOSS},
    {StatusCode::kUnimplemented, grpc::UNIMPLEMENTED},
    {StatusCode::kCancelled, grpc::CANCELLED},
    {StatusCode::kInternal, grpc::INTERNAL},
};
constexpr std::pair<StatusCode, grpc::StatusCode> kBackOnly[] = {
    {StatusCode::kUnavailable, grpc::RESOURCE_EXHAUSTED},
    {StatusCode::kUnavailable, grpc::ABORTED},
    {StatusCode::kPermissionDenied, grpc::UNAUTHENTICATED},
    {StatusCode::kInvalidInput, grpc::OUT_OF_RANGE},
};

grpc::StatusCode CodeToGrpc(StatusCode code) {
  for (const auto& [ours, theirs] : kBothWays) {
    if (ours == code) return theirs;
  }
  return grpc::INTERNAL;
}

StatusCode CodeFromGrpc(grpc::StatusCode code) {
  for (const auto& [ours, theirs] : kBothWays) {
    if (theirs == code) return ours;
  }
  for (const auto& [ours, theirs] : kBackOnly) {
    if (theirs == code) return ours;
  }
  return StatusCode::kInternal;
}

size_t EncodedBytes(char byte) { return byte >= ' ' && byte <= '~' && byte != '%' ? 1 : 3; }

bool StartsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The longest beginning of whole characters that fits, "..." behind it.
std::string Cut(const std::string& message, size_t limit = kMaxGrpcStatusBytes) {
  constexpr std::string_view kMore = "...";
  size_t encoded = 0, fits = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    if (StartsCharacter(message[i]) && encoded + kMore.size() <= limit) fits = i;
    encoded += EncodedBytes(message[i]);
    if (encoded > limit) return message.substr(0, fits).append(kMore);
  }
  return message;
}

// Details are messages, whose texts must be UTF-8; what an error quotes may be any bytes.
std::string WellFormed(const std::string& text) {
  using Json = nlohmann::json;
  if (std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; })) return text;
  return Json::parse(Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

// The details share the trailer with the message, and are base64 there.
constexpr size_t kMaxDetailBytes = 400;
constexpr std::string_view kDomain = "moeplan";
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kBadRequestType[] = "type.googleapis.com/google.rpc.BadRequest";

// What the words of an error say.
ErrorDetail Read(std::string_view message) {
  constexpr std::string_view kFound = ": found ", kExpected = ", expected ";
  const size_t found = message.find(kFound);
  const size_t expected = found == message.npos ? message.npos : message.find(kExpected, found);
  if (expected == message.npos) return {};
  const std::string_view where = message.substr(0, found);
  const size_t field = where.rfind(": ");
  const size_t value = found + kFound.size();
  return {.field = std::string(field == where.npos ? where : where.substr(field + 2)),
          .found = std::string(message.substr(value, expected - value)),
          .expected = std::string(message.substr(expected + kExpected.size()))};
}

void Add(const google::protobuf::Message& detail, const char* type, rpc::ErrorStatus& status) {
  google::protobuf::Any& any = *status.add_details();
  any.set_type_url(type);
  any.set_value(detail.SerializeAsString());
}

std::string DetailBytes(grpc::StatusCode code, std::string_view reason, const std::string& message) {
  const ErrorDetail detail = Read(message);
  rpc::ErrorStatus status;
  status.set_code(code);
  status.set_message(Cut(message, kMaxDetailBytes));
  rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(std::string(kDomain));
  if (!detail.field.empty()) {
    auto& metadata = *info.mutable_metadata();
    metadata["field"] = Cut(detail.field, kMaxDetailBytes);
    metadata["found"] = Cut(detail.found, kMaxDetailBytes);
    metadata["expected"] = Cut(detail.expected, kMaxDetailBytes);
  }
  Add(info, kErrorInfoType, status);
  if (!detail.field.empty()) {
    rpc::BadRequest bad;
    rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
    violation.set_field(info.metadata().at("field"));
    violation.set_description("found " + info.metadata().at("found") + ", expected " + info.metadata().at("expected"));
    Add(bad, kBadRequestType, status);
  }
  return status.SerializeAsString();
}

}  // namespace

std::string_view CodeName(grpc::StatusCode code) {
  constexpr std::string_view kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : kNames[grpc::UNKNOWN];
}

grpc::Status RpcError(grpc::StatusCode code, std::string_view reason, const std::string& message) {
  const std::string text = WellFormed(message);
  return grpc::Status(code, Cut(text), DetailBytes(code, reason, text));
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return RpcError(CodeToGrpc(status.code()), Name(status.code()), status.message());
}

ErrorDetail DetailOf(const grpc::Status& status) {
  rpc::ErrorStatus details;
  ErrorDetail detail;
  if (!details.ParseFromString(status.error_details())) return detail;
  for (const google::protobuf::Any& any : details.details()) {
    rpc::ErrorInfo info;
    if (any.type_url() != kErrorInfoType || !info.ParseFromString(any.value())) continue;
    const auto value = [&](const char* name) {
      const auto found = info.metadata().find(name);
      return found == info.metadata().end() ? std::string() : found->second;
    };
    detail = {.reason = info.reason(), .field = value("field"), .found = value("found"), .expected = value("expected")};
  }
  return detail;
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(CodeFromGrpc(status.error_code()), status.error_message());
}

}  // namespace moeplan
