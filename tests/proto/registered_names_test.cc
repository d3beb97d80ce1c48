// How names that a program registers travel in messages and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/cost/operation.h"
#include "models/extension/extension.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "proto/convert/enums.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using testing::HasSubstr;

const StatusOr<Codec> kCodec = RegisterCodec({.name = "TEST_CODEC",
                                              .row_bytes = [](int columns) { return static_cast<size_t>(columns); },
                                              .encode = [](auto, auto) {},
                                              .decode = [](auto, auto) {}});

// Files of other processes hold the wire constants of registered names, so these constants may never change.
TEST(RegisteredNamesTest, TheyTravelUnderNumbersOfTheirOwn) {
  EXPECT_EQ(OwnNumber("FP4"), 129226925);
  ASSERT_TRUE(kCodec.ok()) << kCodec.status().message();
  const auto number = EnumToProto<v1::Codec::Kind>(*kCodec);
  EXPECT_EQ(static_cast<int>(number), OwnNumber("TEST_CODEC"));
  EXPECT_EQ(EnumFromProto<Codec>(number, "path"), *kCodec);
  v1::Workload message;
  message.set_dispatch_codec(number);
  const std::string text = ToJson(message);
  EXPECT_THAT(text, HasSubstr("\"TEST_CODEC\""));
  const auto read = FromJson<v1::Workload>(text, "test");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->dispatch_codec(), number);
  const auto strange = static_cast<v1::Codec::Kind>(OwnNumber("NOBODY_ADDED_THIS"));
  EXPECT_THAT(EnumFromProto<Codec>(strange, "path").status().message(), HasSubstr("expected one of NONE, FP16"));
  EXPECT_EQ(RegisterCodec({.name = "UNSPECIFIED"}).status().code(), StatusCode::kInvalidInput);
  const auto kernel = NamedValue<Kernel>("ENCODE_TEST_CODEC");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(EnumFromProto<Kernel>(EnumToProto<v1::Kernel::Kind>(*kernel), "path"), *kernel);
}

}  // namespace
}  // namespace moeplan
