// Router traces as training jobs write them, to counts; and what is no such trace.
#include "proto/router_trace/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Counts = StatusOr<std::vector<double>>;

Counts Read(const std::string& trace, RouterTraceOptions options = {.experts = 4, .layer = {}}) {
  ASSIGN_OR_RETURN(RouterTraceReader reader, RouterTraceReader::Make(options));
  std::istringstream lines(trace);
  RETURN_IF_ERROR(reader.Read(lines, "trace.jsonl"));
  return reader.TokensPerExpert();
}

std::vector<double> CountsOf(const std::string& trace, RouterTraceOptions options = {.experts = 4, .layer = {}}) {
  const Counts counts = Read(trace, options);
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  return counts.ok() ? *counts : std::vector<double>();
}

std::string ErrorOf(const std::string& trace, RouterTraceOptions options = {.experts = 4, .layer = {}}) {
  const Counts counts = Read(trace, options);
  EXPECT_EQ(counts.status().code(), StatusCode::kInvalidInput);
  return counts.status().message();
}

// Two steps of two layers and one of a multi-token-prediction head, as Megatron-LM's RouterTracer writes them.
constexpr char kMegatron[] =
    R"({"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 1, "rank": 0, "num_tokens": 2, "topk": 2, "top_indices": [[0, 1], [0, 3]]}
{"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 2, "topk": 2, "top_indices": [[2, 1], [2, 3]], "hs_offset": 0, "hs_bytes": 64, "hs_shape": [2, 16]}
{"step": 0, "stage": "pre_dispatch", "block": "mtp", "layer": 1, "rank": 0, "num_tokens": 1, "topk": 2, "mtp_idx": 0, "top_indices": [[3, 2]]}
{"step": 1, "stage": "pre_dispatch", "block": "decoder", "layer": 1, "rank": 0, "num_tokens": 1, "topk": 2, "top_indices": [[1, 0]]}
)";

TEST(RouterTraceTest, RecordsOfMegatronAddUpOverStepsAndLayers) {
  EXPECT_THAT(CountsOf(kMegatron), ElementsAre(3, 3, 3, 3));
}

TEST(RouterTraceTest, OneLayerLeavesOutTheOthersAndThoseOfPredictionHeads) {
  EXPECT_THAT(CountsOf(kMegatron, {.experts = 4, .layer = 1}), ElementsAre(3, 2, 0, 1));
  EXPECT_THAT(CountsOf(kMegatron, {.experts = 4, .layer = 3}), ElementsAre(0, 1, 2, 1));
  EXPECT_EQ(ErrorOf(kMegatron, {.experts = 4, .layer = 2}), "--router-layer: found 2, expected one of 1, 3");
}

TEST(RouterTraceTest, FilesAddUp) {
  auto reader = *RouterTraceReader::Make({.experts = 2, .layer = {}});
  for (const char* text : {R"({"top_indices": [[0]]})", R"({"top_indices": [[1], [0]]})"}) {
    std::istringstream lines(text);
    EXPECT_TRUE(reader.Read(lines, "trace").ok());
  }
  EXPECT_THAT(*reader.TokensPerExpert(), ElementsAre(2, 1));
}

TEST(RouterTraceTest, CountsAreReadInEveryForm) {
  EXPECT_THAT(CountsOf(R"({"layer": 0, "tokens_per_expert": [5, 0, 2, 1]})"), ElementsAre(5, 0, 2, 1));
  EXPECT_THAT(CountsOf(R"({"iter": 100, "block": "decoder", "layer": 3, "tpe": [[128, 64, 0, 1], [96, 80, 2, 0]]})"),
              ElementsAre(224, 144, 2, 1));
  EXPECT_THAT(CountsOf(R"({"layer_number": 1, "topk_indices": [[3, 1], [0, 1]]})", {.experts = 4, .layer = 1}),
              ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(CountsOf(R"({"layer_id": 1, "topk_ids": [3, 1]})", {.experts = 4, .layer = 1}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(CountsOf(R"({"routing_map": [[1, 0, 0, 1], [false, true, false, true]]})"), ElementsAre(1, 1, 0, 2));
}

TEST(RouterTraceTest, EmptyLinesAndMissingLineEndsAreNoFault) {
  EXPECT_THAT(CountsOf("\n{\"tokens_per_expert\": [1, 2, 3, 4]}\r\n  \n{\"tokens_per_expert\": [1, 0, 0, 0]}"),
              ElementsAre(2, 2, 3, 4));
}

TEST(RouterTraceTest, AMalformedLineIsToldByItsNumber) {
  const std::string good = "{\"tokens_per_expert\": [1, 2, 3, 4]}\n";
  EXPECT_EQ(ErrorOf(good + "{\"tokens_per_expert\": [1, 2, 3"),
            "trace.jsonl:2: found no JSON, expected one JSON object on the line");
  EXPECT_EQ(ErrorOf(good + "\n[1]\n"),
            "trace.jsonl:3: found a value of type array, expected one JSON object on the line");
  EXPECT_EQ(ErrorOf(good + "{} {}"), "trace.jsonl:2: found no JSON, expected one JSON object on the line");
  EXPECT_EQ(ErrorOf("{\"layer\": 1}"),
            "trace.jsonl:1: found none of them, expected one of top_indices, topk_indices, "
            "topk_ids, routing_map, tokens_per_expert, tpe");
  EXPECT_EQ(ErrorOf(R"({"tpe": [[1]], "top_indices": [[1]]})"),
            "trace.jsonl:1: found top_indices and tpe, expected one of them");
  EXPECT_EQ(ErrorOf(R"({"layer": 1, "layer_id": 1, "topk_ids": [[1]]})"),
            "trace.jsonl:1: found layer and layer_id, expected one of them");
}

TEST(RouterTraceTest, WhatDoesNotFitIsToldByItsPlace) {
  EXPECT_EQ(ErrorOf(R"({"top_indices": [[0, 1], [2, 4]]})"),
            "trace.jsonl:1.top_indices[1][1]: found 4, expected an expert from 0 to 3, as layer.experts is 4");
  EXPECT_THAT(ErrorOf(R"({"top_indices": [[0, -1]]})"), HasSubstr("top_indices[0][1]: found -1"));
  EXPECT_THAT(ErrorOf(R"({"top_indices": [[0, 1.5]]})"), HasSubstr("top_indices[0][1]: found 1.5"));
  EXPECT_THAT(ErrorOf(R"({"top_indices": [[0, "1"]]})"), HasSubstr("top_indices[0][1]: found a value of type string"));
  EXPECT_THAT(ErrorOf(R"({"top_indices": [[0], 1]})"), HasSubstr("top_indices[1]: found 1, expected a list"));
  EXPECT_THAT(ErrorOf(R"({"top_indices": 3})"), HasSubstr("top_indices: found 3, expected a list"));
  EXPECT_EQ(ErrorOf(R"({"top_indices": [[1, 1]]})"),
            "trace.jsonl:1.top_indices[0][1]: found expert 1 again, expected each expert of a token once");
  EXPECT_EQ(ErrorOf(R"({"num_tokens": 3, "top_indices": [[1], [2]]})"),
            "trace.jsonl:1.num_tokens: found 3, expected 2, the tokens that are listed");
  EXPECT_EQ(ErrorOf(R"({"topk": 2, "top_indices": [[1, 0], [2]]})"),
            "trace.jsonl:1.topk: found 2, expected 1, as many as a token lists");
  EXPECT_THAT(
      ErrorOf(R"({"tpe": [[128, 64]]})"),
      AllOf(HasSubstr("trace.jsonl:1.tpe[0]: found 2 values, expected one for each of layer.experts, which is 4"),
            HasSubstr("top_indices")));
  EXPECT_THAT(ErrorOf(R"({"tokens_per_expert": [1, 2, -3, 4]})"), HasSubstr("tokens_per_expert[2]: found -3"));
  EXPECT_THAT(ErrorOf(R"({"routing_map": [[1, 0, 2, 0]]})"), HasSubstr("routing_map[0][2]: found 2"));
  EXPECT_THAT(ErrorOf(R"({"topk_ids": [[1]]})", {.experts = 4, .layer = 0}),
              HasSubstr("trace.jsonl:1.layer: found nothing, expected a number"));
  EXPECT_THAT(ErrorOf(R"({"layer": "one", "topk_ids": [[1]]})"), HasSubstr("trace.jsonl:1.layer: found a value"));
}

TEST(RouterTraceTest, NothingToCountIsToldAsWell) {
  EXPECT_EQ(ErrorOf(""), "router trace: found no record, expected at least one line");
  EXPECT_EQ(ErrorOf("", {.experts = 4, .layer = 1}), "router trace: found no record of layer 1, expected one");
  EXPECT_EQ(ErrorOf("{\"top_indices\": []}"), "router trace: found no token, expected at least one");
  EXPECT_EQ(ErrorOf("", {.experts = 0, .layer = {}}),
            "layer.experts: found 0, expected 1 to 65536 with a router trace");
  EXPECT_EQ(ErrorOf("", {.experts = 4, .layer = -1}),
            "--router-layer: found -1, expected a whole number of at least 0");
}

TEST(RouterTraceTest, DeepLinesAndLongOnesAreRefused) {
  EXPECT_THAT(ErrorOf("{\"top_indices\": " + std::string(1000000, '[')), HasSubstr("more than 64 nested values"));
  EXPECT_THAT(
      CountsOf(
          R"({"note": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"", "topk_ids": [[1]]})"),
      ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(ErrorOf(std::string((size_t{64} << 20) + 1, ' ')), HasSubstr("trace.jsonl:1: found a line of more than"));
}

TEST(RouterTraceTest, TellsHowManyExpertsATokenChose) {
  const auto chosen = [](const std::string& trace) {
    auto reader = *RouterTraceReader::Make({.experts = 4, .layer = {}});
    std::istringstream stream(trace);
    EXPECT_TRUE(reader.Read(stream, "trace.jsonl").ok());
    return reader.ExpertsPerToken();
  };
  EXPECT_EQ(chosen(R"({"top_indices": [[0, 1], [1, 2]]})"), 2);
  EXPECT_EQ(chosen("{\"topk_ids\": [3]}\n{\"routing_map\": [[1, 1, 0, 1], [0, 0, 0, 0]]}"), 4.0 / 3);
  EXPECT_EQ(chosen(R"({"tokens_per_expert": [1, 2, 3, 4]})"), std::nullopt);
}

TEST(RouterTraceTest, FilesThatCannotBeReadAreNamed) {
  auto reader = *RouterTraceReader::Make({.experts = 2, .layer = {}});
  EXPECT_THAT(reader.ReadFile("/nowhere/trace.jsonl").message(),
              AllOf(HasSubstr("/nowhere/trace.jsonl: found no readable file"), HasSubstr("expected a router trace")));
  EXPECT_THAT(reader.ReadFile("/").message(), HasSubstr("/: found a directory"));
}

TEST(RouterTraceTest, RandomTracesAreCountedLikeATally) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 300; ++i) {
    const int experts = 1 + static_cast<int>(random() % 12);
    std::vector<double> tally(experts, 0);
    std::string trace;
    for (int lines = 1 + static_cast<int>(random() % 5); lines > 0; --lines) {
      nlohmann::json tokens = nlohmann::json::array();
      for (int token = 1 + static_cast<int>(random() % 20); token > 0; --token) {
        std::vector<int> chosen(experts);
        for (int expert = 0; expert < experts; ++expert) chosen[expert] = expert;
        std::ranges::shuffle(chosen, random);
        chosen.resize(1 + random() % experts);
        for (const int expert : chosen) ++tally[expert];
        tokens.push_back(chosen);
      }
      trace += nlohmann::json{{"num_tokens", tokens.size()}, {"top_indices", tokens}}.dump() + "\n";
    }
    EXPECT_EQ(CountsOf(trace, {.experts = experts, .layer = {}}), tally);
  }
}

TEST(RouterTraceTest, DamagedTracesAreReadOrRefused) {
  std::mt19937_64 random(TestSeed());
  const std::string good = kMegatron;
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0: bad[at] = static_cast<char>(random() % 256); break;
        case 1: bad.erase(at, 1 + random() % 9); break;
        case 2: bad.insert(at, 1, "[]{}\",:0-9e.\n\\"[random() % 15]); break;
      }
    }
    const Counts counts = Read(bad);
    if (!counts.ok()) {
      EXPECT_EQ(counts.status().code(), StatusCode::kInvalidInput) << bad;
    }
  }
}

}  // namespace
}  // namespace moeplan
