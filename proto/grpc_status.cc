#include "proto/grpc_status.h"

#include <string>
#include <string_view>
#include <utility>

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
std::string Cut(const std::string& message) {
  constexpr std::string_view kMore = "...";
  size_t encoded = 0, fits = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    if (StartsCharacter(message[i]) && encoded + kMore.size() <= kMaxGrpcStatusBytes) fits = i;
    encoded += EncodedBytes(message[i]);
    if (encoded > kMaxGrpcStatusBytes) return message.substr(0, fits).append(kMore);
  }
  return message;
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(CodeToGrpc(status.code()), Cut(status.message()));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(CodeFromGrpc(status.error_code()), status.error_message());
}

}  // namespace moeplan
