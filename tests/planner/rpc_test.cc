#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/text.h"
#include "moeplan/rpc/error_details.pb.h"
#include "proto/grpc_status.h"
#include "proto/host_port.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

TEST(GrpcStatusTest, EveryCodeThatCrossesComesBack) {
  for (const auto& [ours, theirs] :
       {std::pair(StatusCode::kInvalidInput, grpc::INVALID_ARGUMENT), std::pair(StatusCode::kNotFound, grpc::NOT_FOUND),
        std::pair(StatusCode::kInfeasible, grpc::FAILED_PRECONDITION),
        std::pair(StatusCode::kUnavailable, grpc::UNAVAILABLE),
        std::pair(StatusCode::kDeadlineExceeded, grpc::DEADLINE_EXCEEDED),
        std::pair(StatusCode::kPermissionDenied, grpc::PERMISSION_DENIED),
        std::pair(StatusCode::kDataLoss, grpc::DATA_LOSS), std::pair(StatusCode::kUnimplemented, grpc::UNIMPLEMENTED),
        std::pair(StatusCode::kCancelled, grpc::CANCELLED), std::pair(StatusCode::kInternal, grpc::INTERNAL)}) {
    const grpc::Status there = ToGrpc(Status(ours, "why"));
    EXPECT_EQ(there.error_code(), theirs);
    EXPECT_EQ(FromGrpc(there), Status(ours, "why"));
  }
  EXPECT_TRUE(ToGrpc(OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(GrpcStatusTest, OtherCodesBecomeTheNearestOfOurs) {
  EXPECT_EQ(ToGrpc(PeerLost("x")).error_code(), grpc::INTERNAL);
  EXPECT_EQ(FromGrpc({grpc::RESOURCE_EXHAUSTED, "x"}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(FromGrpc({grpc::OUT_OF_RANGE, "x"}).code(), StatusCode::kInvalidInput);
  EXPECT_EQ(FromGrpc({grpc::UNKNOWN, "x"}).code(), StatusCode::kInternal);
}

TEST(GrpcStatusTest, LongMessagesAreCutBetweenCharacters) {
  const std::string fits(kMaxGrpcStatusBytes, 'x');
  EXPECT_EQ(ToGrpc(NotFound(fits)).error_message(), fits);
  const std::string cut = ToGrpc(NotFound(fits + "x")).error_message();
  EXPECT_EQ(cut, StrCat(std::string(kMaxGrpcStatusBytes - 3, 'x'), "..."));
  // "é" is two bytes, six when encoded: 4093 / 6 = 682 of them fit beside the dots.
  std::string accents;
  for (int i = 0; i < 1000; ++i) accents += "é";
  EXPECT_EQ(ToGrpc(NotFound(accents)).error_message(), accents.substr(0, 682 * 2) + "...");
}

TEST(GrpcStatusTest, WhatIsWrongTravelsInParts) {
  const grpc::Status field = ToGrpc(InvalidInput("grid.json: workload 'a': layer.topK: found 0, expected at least 1"));
  EXPECT_EQ(DetailOf(field),
            (ErrorDetail{.reason = "INVALID_INPUT", .field = "layer.topK", .found = "0", .expected = "at least 1"}));
  EXPECT_EQ(DetailOf(ToGrpc(NotFound("no such thing"))), (ErrorDetail{.reason = "NOT_FOUND"}));
  EXPECT_EQ(DetailOf(RpcError(grpc::UNAUTHENTICATED, "NO_TOKEN", "why")), (ErrorDetail{.reason = "NO_TOKEN"}));
  EXPECT_EQ(DetailOf(grpc::Status::OK), ErrorDetail());
  // What is quoted may be any bytes.
  EXPECT_EQ(DetailOf(ToGrpc(InvalidInput("name: found '\xff\xc3\xa4', expected letters"))),
            (ErrorDetail{.reason = "INVALID_INPUT", .field = "name", .found = "'\uFFFDä'", .expected = "letters"}));
  // As any gRPC client reads it: google.rpc.Status with an ErrorInfo and a BadRequest.
  rpc::ErrorStatus status;
  ASSERT_TRUE(status.ParseFromString(field.error_details()));
  EXPECT_EQ(status.code(), grpc::INVALID_ARGUMENT);
  ASSERT_EQ(status.details_size(), 2);
  EXPECT_EQ(status.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  rpc::BadRequest bad;
  ASSERT_TRUE(bad.ParseFromString(status.details(1).value()));
  EXPECT_EQ(bad.field_violations(0).field(), "layer.topK");
  EXPECT_EQ(bad.field_violations(0).description(), "found 0, expected at least 1");
}

TEST(GrpcStatusTest, DetailsOfLongMessagesLeaveRoomForTheMessage) {
  const std::string text(10000, 'x');
  const grpc::Status status = ToGrpc(InvalidInput(text + ": found " + text + ", expected " + text));
  EXPECT_LT(status.error_details().size(), 3000u);
  EXPECT_EQ(DetailOf(status).field.size(), 400u);
}

TEST(HostPortTest, ReadsNamesAndBothKindsOfNumbers) {
  EXPECT_EQ(*ParseHostPort("127.0.0.1:7070", "f"), (HostPort{"127.0.0.1", 7070}));
  EXPECT_EQ(*ParseHostPort("node-7.example:0", "f"), (HostPort{"node-7.example", 0}));
  EXPECT_EQ(*ParseHostPort("[::1]:65535", "f"), (HostPort{"::1", 65535}));
  EXPECT_EQ(ToString({"::1", 1}), "[::1]:1");
  EXPECT_EQ(ToString({"a", 1}), "a:1");
}

TEST(HostPortTest, RefusesEverythingElse) {
  for (const char* text : {"", ":", "a", "a:", ":1", "a:65536", "a:-1", "a:+1", "a:1x", "a: 1", "::1:1", "[::1]",
                           "[]:1", "http://a:1", "a/b:1", "a b:1", "unix:/x"}) {
    EXPECT_THAT(ParseHostPort(text, "--grpc"), IsError(StatusCode::kInvalidInput, "--grpc: found '")) << text;
  }
}

TEST(HostPortTest, LoopbackIsThisMachineAlone) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) EXPECT_TRUE(IsLoopback({host, 1})) << host;
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "128.0.0.1", "localhost.example", "127.0.0.1.example"}) {
    EXPECT_FALSE(IsLoopback({host, 1})) << host;
  }
}

}  // namespace
}  // namespace moeplan::service
