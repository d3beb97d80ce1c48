#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/samples.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Message>
std::string ErrorOf(std::string_view text) {
  const auto message = FromJson<Message>(text, "w.json");
  if (message.ok()) return "accepted";
  EXPECT_EQ(message.status().code(), StatusCode::kInvalidInput);
  return message.status().message();
}

TEST(JsonReadTest, UnknownFieldsAreNamedWithTheirPath) {
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"topk": 2}})"),
            "w.json: layer.topk: found an unknown field (did you mean topK?), expected one of batch, sequenceLength, "
            "modelDim, "
            "hiddenDim, experts, topK, capacityFactor, bytesPerElement, expertMatrices, gate, expertBias, "
            "sharedHiddenDim, auxLossCoefficient, zLossCoefficient, expertKind, receiveFactor, router, "
            "swigluLimit");
  EXPECT_EQ(ErrorOf<v1::RunReport>(R"({"ranks": [{}, {"timeline": [{"beginning": 1}]}]})"),
            "w.json: ranks[1].timeline[0].beginning: found an unknown field, expected one of task, kind, stream, "
            "chunk, startS, endS");
  EXPECT_THAT(
      ErrorOf<v1::Workload>(R"({"min_chunk_bytes": 1})"),
      StartsWith(
          "w.json: min_chunk_bytes: found an unknown field (did you mean minChunkBytes?), expected one of name"));
  EXPECT_THAT(ErrorOf<v1::Workload>(R"({"zzz": null})"), StartsWith("w.json: zzz: found an unknown field, expected"));
}

TEST(JsonReadTest, WrongTypesSayWhatWasFound) {
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"batch": "1"}})"),
            "w.json: layer.batch: found the string \"1\", expected a whole number");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"capacityFactor": "1.5"}})"),
            "w.json: layer.capacityFactor: found the string \"1.5\", expected a number");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"capacityFactor": true}})"),
            "w.json: layer.capacityFactor: found true, expected a number");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": 3})"), "w.json: layer: found 3, expected an object");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"allowLossy": 0})"), "w.json: allowLossy: found 0, expected true or false");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"name": 5})"), "w.json: name: found 5, expected a string");
  EXPECT_EQ(ErrorOf<v1::WorkloadGrid>(R"({"workloads": {}})"), "w.json: workloads: found an object, expected a list");
  EXPECT_EQ(ErrorOf<v1::WorkloadGrid>(R"({"workloads": [[]]})"),
            "w.json: workloads[0]: found a list, expected an object");
  EXPECT_EQ(ErrorOf<v1::Samples>(R"({"samples": [{"timeS": [1, "x"]}]})"),
            "w.json: samples[0].timeS[1]: found the string \"x\", expected a number");
  EXPECT_EQ(ErrorOf<v1::Samples>(R"({"samples": [{"provenance": {"host": 1}}]})"),
            "w.json: samples[0].provenance.host: found 1, expected a string");
  EXPECT_EQ(ErrorOf<v1::Samples>(R"({"samples": [{"provenance": []}]})"),
            "w.json: samples[0].provenance: found a list, expected an object");
  EXPECT_EQ(ErrorOf<v1::WhatIfResult>(R"({"rows": [{"fields": {"a.b": {}}}]})"),
            "w.json: rows[0].fields.a.b: found an object, expected a number, a string, true or false");
  EXPECT_EQ(ErrorOf<v1::Workload>("[]"), "w.json: found a list, expected an object");
  EXPECT_EQ(ErrorOf<v1::Workload>("null"), "w.json: found null, expected an object");
}

TEST(JsonReadTest, WholeNumbersAreWholeAndFit) {
  EXPECT_EQ(ErrorOf<v1::Layer>(R"({"batch": 1.5})"), "w.json: batch: found 1.5, expected a whole number");
  const std::string range = "expected a whole number from -2147483648 to 2147483647";
  EXPECT_EQ(ErrorOf<v1::Layer>(R"({"batch": 2147483648})"), "w.json: batch: found 2147483648, " + range);
  EXPECT_EQ(ErrorOf<v1::Layer>(R"({"batch": -2147483649})"), "w.json: batch: found -2147483649, " + range);
  EXPECT_EQ(ErrorOf<v1::Layer>(R"({"batch": 18446744073709551616})"),
            "w.json: batch: found 18446744073709551616, " + range);
  EXPECT_EQ(FromJson<v1::Layer>(R"({"batch": 2147483647})", "w.json")->batch(), 2147483647);
  EXPECT_EQ(FromJson<v1::Layer>(R"({"batch": -2147483648})", "w.json")->batch(), -2147483647 - 1);
  EXPECT_EQ(FromJson<v1::Layer>(R"({"batch": 8.0})", "w.json")->batch(), 8);
}

TEST(JsonReadTest, NumbersAreFinite) {
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"batch": 1, "capacityFactor": 1e999}})"),
            "w.json: layer.capacityFactor: found a number beyond the range of a double, expected a finite number");
  EXPECT_EQ(ErrorOf<v1::Samples>(R"({"samples": [{"timeS": [1, 2, -1e999]}]})"),
            "w.json: samples[0].timeS[2]: found a number beyond the range of a double, expected a finite number");
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"capacityFactor\": NaN}"),
              StartsWith("w.json: line 1, column 20: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"capacityFactor\": Infinity}"), HasSubstr("line 1, column 20: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"capacityFactor\": \"NaN\"}"),
              HasSubstr("capacityFactor: found the string \"NaN\", expected a number"));
}

TEST(JsonReadTest, AKeyStandsOnce) {
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"layer": {"batch": 1, "topK": 2, "batch": 1}})"),
            "w.json: layer.batch: found the key twice, expected it once");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"name": null, "name": "x"})"),
            "w.json: name: found the key twice, expected it once");
  EXPECT_EQ(ErrorOf<v1::WorkloadGrid>(R"({"workloads": [{"name": "a"}, {"layer": {}, "layer": {}}]})"),
            "w.json: workloads[1].layer: found the key twice, expected it once");
  // Escaped and plain are the same key; the same key in two objects is none.
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"name": "", "n\u0061me": ""})"),
            "w.json: name: found the key twice, expected it once");
  EXPECT_EQ(ErrorOf<v1::WorkloadGrid>(R"({"workloads": [{"name": "a"}, {"name": "a"}]})"), "accepted");
}

TEST(JsonReadTest, EnumsAreNamed) {
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"dispatchCodec": "FP9"})"),
            "w.json: dispatchCodec: found the string \"FP9\", expected one of NONE, FP16, BF16, FP8, INT8, ZFP, "
            "FP8_BLOCKWISE");
  EXPECT_EQ(ErrorOf<v1::Workload>(R"({"dispatchCodec": 3})"),
            "w.json: dispatchCodec: found 3, expected one of NONE, FP16, BF16, FP8, INT8, ZFP, FP8_BLOCKWISE");
  EXPECT_EQ(ErrorOf<v1::TaskTiming>(R"({"stream": "compute"})"),
            "w.json: stream: found the string \"compute\", expected one of COMPUTE, INTRA_NODE, INTER_NODE, COPY");
}

TEST(JsonReadTest, NullIsAbsent) {
  const auto workload = FromJson<v1::Workload>(R"({"layer": null, "maxChunks": null, "phase": null})", "w.json");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_FALSE(workload->has_layer());
  EXPECT_FALSE(workload->has_max_chunks());
  EXPECT_EQ(ErrorOf<v1::WorkloadGrid>(R"({"workloads": [null]})"),
            "w.json: workloads[0]: found null, expected an object");
  EXPECT_EQ(ErrorOf<v1::Plan>(R"({"chunkShares": [null]})"), "w.json: chunkShares[0]: found null, expected a number");
  EXPECT_EQ(ErrorOf<v1::CollectiveModel>(R"({"logLog": null, "efficiency": {}})"), "accepted");
}

TEST(JsonReadTest, ExplicitZeroDiffersFromAbsent) {
  const auto layout = FromJson<v1::Layout>(R"({"tensorParallel": 0})", "w.json");
  EXPECT_TRUE(layout->has_tensor_parallel());
  EXPECT_FALSE(layout->has_expert_parallel());
}

TEST(JsonReadTest, OneAlternativeIsSet) {
  EXPECT_EQ(
      ErrorOf<v1::Profile>(R"({"collectives": [{"efficiency": {}, "logLog": {}}]})"),
      "w.json: collectives[0]: found both efficiency and logLog, expected at most one of efficiency, interpolated, "
      "logLog");
  EXPECT_EQ(ErrorOf<v1::TimePoint>(R"({"bytes": 0, "flops": 0})"),
            "w.json: found both bytes and flops, expected at most one of bytes, flops");
  EXPECT_EQ(ErrorOf<v1::CollectiveModel>(R"({"alphaBeta": {}, "logLog": {}})"), "accepted");
}

TEST(JsonReadTest, MalformedTextIsLocated) {
  EXPECT_EQ(ErrorOf<v1::Layer>("{\n  \"batch\": 1,\n  \"topK\" 2\n}"),
            "w.json: line 3, column 10: found no JSON: syntax error while parsing object separator - unexpected number "
            "literal; expected ':', expected one JSON object");
  EXPECT_THAT(ErrorOf<v1::Layer>(""), StartsWith("w.json: line 1, column 1: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"batch\": 1"), StartsWith("w.json: line 1, column 12: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{} {}"), StartsWith("w.json: line 1, column 4: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"batch\": 1,}"), StartsWith("w.json: line 1, column 13: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{/**/}"), StartsWith("w.json: line 1, column 2: found no JSON: "));
  EXPECT_THAT(ErrorOf<v1::Layer>("{\"batch\": 01}"), HasSubstr("found no JSON: "));
}

TEST(JsonReadTest, BytesThatAreNotUtf8AreRefused) {
  EXPECT_THAT(ErrorOf<v1::Workload>("{\"name\": \"a\xff\"}"), HasSubstr("ill-formed UTF-8 byte"));
  EXPECT_THAT(ErrorOf<v1::Workload>("\xff\xfe{}"), HasSubstr("found no JSON"));
  EXPECT_THAT(ErrorOf<v1::Workload>("{\"name\": \"\\ud800\"}"), HasSubstr("found no JSON"));
  const auto workload = FromJson<v1::Workload>("{\"name\": \"\\u0000é\\ud83d\\ude00\"}", "w.json");
  EXPECT_EQ(workload->name(), std::string("\0é😀", 7));
}

TEST(JsonReadTest, DeepTextIsRefused) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(ErrorOf<v1::Workload>(nested(kMaxJsonDepth)), "w.json: found a list, expected an object");
  EXPECT_THAT(ErrorOf<v1::Workload>(nested(kMaxJsonDepth + 1)),
              HasSubstr("[0][0]...: found more than 64 nested values, expected fewer"));
  EXPECT_THAT(ErrorOf<v1::Workload>(std::string(10'000'000, '[')), HasSubstr("more than 64 nested values"));
}

TEST(JsonReadTest, LongTextIsRefused) {
  EXPECT_EQ(ErrorOf<v1::Workload>(std::string(kMaxJsonBytes + 1, ' ')),
            "w.json: found 67108865 bytes, expected at most 67108864");
}

TEST(JsonReadTest, LongForeignTextIsCutInMessages) {
  EXPECT_LT(ErrorOf<v1::Workload>("{\"" + std::string(100'000, 'x') + "\": 1}").size(), 500u);
  EXPECT_LT(ErrorOf<v1::Workload>("{\"name\": \"" + std::string(100'000, 'x')).size(), 500u);
  EXPECT_LT(ErrorOf<v1::Workload>("{\"layer\": \"" + std::string(100'000, 'x') + "\"}").size(), 500u);
}

TEST(JsonReadTest, ManyKeysAreReadInGoodTime) {
  std::string text = R"({"samples": [{"provenance": {)";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\": \"\"";
  EXPECT_EQ(ErrorOf<v1::Samples>(text + "}}]}"), "accepted");
}

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(std::filesystem::temp_directory_path() / ("proto_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  const std::filesystem::path folder_;
};

TEST_F(FileTest, AFileIsRead) {
  const auto workload = ReadJsonFile<v1::Workload>(Write("a.json", R"({"name": "a"})"));
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_EQ(workload->name(), "a");
}

TEST_F(FileTest, ErrorsNameTheFile) {
  const std::string path = Write("b.json", R"({"nam": "a"})");
  EXPECT_THAT(ReadJsonFile<v1::Workload>(path).status().message(), StartsWith(path + ": nam: found an unknown field"));
}

TEST_F(FileTest, AMissingFileADirectoryAndAnEmptyFileAreInvalidInput) {
  const std::string missing = folder_ / "missing.json";
  EXPECT_EQ(ReadJsonFile<v1::Workload>(missing).status(),
            InvalidInput(missing + ": found no readable file (No such file or directory), expected JSON"));
  EXPECT_EQ(ReadJsonFile<v1::Workload>(folder_).status(),
            InvalidInput(folder_.string() + ": found a directory, expected a file"));
  const std::string empty = Write("empty.json", "");
  EXPECT_EQ(ReadJsonFile<v1::Workload>(empty).status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(ReadJsonFile<v1::Workload>(empty).status().message(), StartsWith(empty + ": line 1"));
}

TEST_F(FileTest, ALongFileIsRefused) {
  const std::string path = Write("long.json", "");
  std::filesystem::resize_file(path, kMaxJsonBytes + 1);
  EXPECT_EQ(ReadJsonFile<v1::Workload>(path).status(),
            InvalidInput(path + ": found more than 67108864 bytes, expected at most that many"));
}

}  // namespace
}  // namespace moeplan
