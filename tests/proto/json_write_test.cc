#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/samples.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "proto/json.h"

namespace moeplan {
namespace {

std::string Compact(const google::protobuf::Message& message) { return ToJson(message, JsonStyle::kCompact); }

TEST(JsonWriteTest, ScalarsAndListsArePrintedEvenWhenEmpty) {
  EXPECT_EQ(
      Compact(v1::Plan()),
      R"({"schedule":"UNSPECIFIED","chunks":0,"partitionDegree":0,"allToAll":"DIRECT","dispatchCodec":"NONE",)"
      R"("combineCodec":"NONE","overlappedGather":false,"chunkShares":[],"order":[],"predictedTimeS":0,"lowS":0,)"
      R"("highS":0,"communicationTimeS":0,"exposedCommunicationS":0,"computeTimeS":0,"memoryBytes":0,"timeline":[],)"
      R"("communicationCtas":0})");
}

TEST(JsonWriteTest, AbsentMessagesOptionalScalarsAndEmptyMapsAreNot) {
  EXPECT_EQ(Compact(v1::Rules()), "{}");
  EXPECT_EQ(Compact(v1::Layout()), "{}");
  EXPECT_EQ(Compact(v1::Sample()), R"({"contention":"NONE","timeS":[]})");
  v1::Layout layout;
  layout.set_tensor_parallel(0);
  EXPECT_EQ(Compact(layout), R"({"tensorParallel":0})");
  v1::Rules rules;
  rules.mutable_parm();
  EXPECT_EQ(Compact(rules), R"({"parm":{"tBaselineS":0,"tS1S":0,"tS2S":0,"choice":"UNSPECIFIED"}})");
}

TEST(JsonWriteTest, OnlyTheAlternativeThatIsSetIsPrinted) {
  v1::AlphaBeta line;
  EXPECT_EQ(Compact(line), R"({"alphaS":0})");
  line.set_beta_s_per_flop(0);
  EXPECT_EQ(Compact(line), R"({"alphaS":0,"betaSPerFlop":0})");
  line.set_beta_s_per_byte(0);
  EXPECT_EQ(Compact(line), R"({"alphaS":0,"betaSPerByte":0})");
}

TEST(JsonWriteTest, KeysKeepTheOrderOfTheFile) {
  v1::Cluster cluster;
  cluster.set_device_memory_bytes(8.5e10);
  cluster.set_nodes(2);
  EXPECT_EQ(Compact(cluster), R"({"nodes":2,"gpusPerNode":0,"peakFlopsPerS":0,"deviceMemoryBytes":8.5e+10,)"
                              R"("nodeLinkBytesPerS":0,"networkBytesPerS":0})");
}

TEST(JsonWriteTest, PrettyIsIndentedByTwoAndKeepsScalarListsOnOneLine) {
  v1::Samples samples;
  v1::Sample& sample = *samples.add_samples();
  sample.set_kernel(v1::Kernel::GATE);
  sample.set_bytes(1048576);
  sample.add_time_s(0.5);
  sample.add_time_s(1e-5);
  (*sample.mutable_provenance())["hostname"] = "n1";
  (*sample.mutable_provenance())["backend"] = "host";
  EXPECT_EQ(
      ToJson(samples),
      "{\n  \"name\": \"\",\n  \"samples\": [\n    {\n      \"kernel\": \"GATE\",\n      \"contention\": \"NONE\",\n"
      "      \"bytes\": 1048576,\n      \"timeS\": [0.5, 1e-05],\n      \"provenance\": {\n"
      "        \"backend\": \"host\",\n        \"hostname\": \"n1\"\n      }\n    }\n  ]\n}\n");
  EXPECT_EQ(ToJson(v1::Rules()), "{}\n");
  EXPECT_EQ(ToJson(v1::LogLog()), "{\n  \"points\": []\n}\n");
}

TEST(JsonWriteTest, DoublesReadBackToTheSameBits) {
  using Limits = std::numeric_limits<double>;
  for (const double number : {0.0, -0.0, 0.1, 1.0 / 3, 0.0013105845250645995, 1048576.0, 9007199254740993.0, 1e22, 1e23,
                              -1.5e-300, 123456789012345680000.0, Limits::max(), Limits::min(), Limits::denorm_min()}) {
    v1::AlphaBeta line;
    line.set_alpha_s(number);
    const auto read = FromJson<v1::AlphaBeta>(ToJson(line), "line");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(std::bit_cast<uint64_t>(read->alpha_s()), std::bit_cast<uint64_t>(number)) << Compact(line);
  }
}

TEST(JsonWriteTest, DoublesAreShort) {
  v1::AlphaBeta line;
  line.set_alpha_s(0.0013105845250645995);
  EXPECT_EQ(Compact(line), R"({"alphaS":0.0013105845250645995})");
  line.set_alpha_s(1048576);
  EXPECT_EQ(Compact(line), R"({"alphaS":1048576})");
}

TEST(JsonWriteTest, StringsAreEscapedAndBadBytesReplaced) {
  v1::SkippedRule rule;
  rule.set_rule("a\"\\\n\x01é");
  rule.set_reason("bad \xff\xc3");
  EXPECT_EQ(Compact(rule), "{\"rule\":\"a\\\"\\\\\\n\\u0001é\",\"reason\":\"bad \uFFFD\uFFFD\"}");
}

TEST(JsonWriteTest, WhatIsNotANumberPrintsAsNull) {
  v1::AlphaBeta line;
  line.set_alpha_s(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Compact(line), R"({"alphaS":null})");
  line.set_alpha_s(std::numeric_limits<double>::infinity());
  EXPECT_EQ(Compact(line), R"({"alphaS":null})");
}

TEST(JsonWriteTest, SweptFieldsAreNumbersOrNames) {
  v1::WhatIfRow row;
  (*row.mutable_fields())["layout.expertParallel"].set_number_value(4);
  (*row.mutable_fields())["dispatchCodec"].set_string_value("FP8");
  (*row.mutable_fields())["allowLossy"].set_bool_value(true);
  const std::string text = R"({"fields":{"allowLossy":true,"dispatchCodec":"FP8","layout.expertParallel":4}})";
  EXPECT_EQ(Compact(row), text);
  EXPECT_EQ(Compact(*FromJson<v1::WhatIfRow>(text, "row")), text);
}

TEST(JsonWriteTest, AnEnumNumberOfANewerPeerIsPrinted) {
  v1::Layer layer;
  layer.set_gate(static_cast<v1::Gate::Kind>(99));
  EXPECT_EQ(nlohmann::json::parse(ToJson(layer)).at("gate"), 99);
}

}  // namespace
}  // namespace moeplan
