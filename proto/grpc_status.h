// Status over gRPC: the one mapping, for who serves and who calls.
//
// kInvalidInput INVALID_ARGUMENT, kNotFound NOT_FOUND, kInfeasible FAILED_PRECONDITION, kUnavailable UNAVAILABLE,
// kDeadlineExceeded DEADLINE_EXCEEDED, kPermissionDenied PERMISSION_DENIED, kDataLoss DATA_LOSS, kUnimplemented
// UNIMPLEMENTED, kCancelled CANCELLED, all else INTERNAL. Coming back, RESOURCE_EXHAUSTED and ABORTED are kUnavailable
// (try again), UNAUTHENTICATED is kPermissionDenied and OUT_OF_RANGE is kInvalidInput. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan {

// What either side takes in one message: what JSON files are limited to, too.
inline constexpr size_t kMaxGrpcMessageBytes = size_t{64} << 20;

// A message travels in the trailer, for which clients have room of 8 KiB, each byte that is not printable ASCII taking
// three. Longer ones are cut, and bytes that are not UTF-8 become U+FFFD.
inline constexpr size_t kMaxGrpcStatusBytes = 4096;

// Our server adds this to the trailer of every error, so that a caller can tell its errors from those of the
// transport.
inline constexpr char kAnsweredByPlanner[] = "moeplan-planner";

grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

// "INVALID_ARGUMENT".
std::string_view CodeName(grpc::StatusCode code);

// An error for programs. Every message that says which field is wrong reads "FIELD: found X, expected Y", perhaps with
// where the field stands in front; the parts travel beside it (moeplan/rpc/error_details.proto).
struct ErrorDetail {
  std::string reason;                  // Such as "INVALID_INPUT": the name of the status code, or a closer reason.
  std::string field, found, expected;  // Empty where no field is named.

  friend bool operator==(const ErrorDetail&, const ErrorDetail&) = default;
};

// An error that is none of ours, with a reason of its own.
grpc::Status RpcError(grpc::StatusCode code, std::string_view reason, const std::string& message);

// What travels with an error; all empty when nothing does.
ErrorDetail DetailOf(const grpc::Status& status);

}  // namespace moeplan
