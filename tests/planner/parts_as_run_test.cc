#include "planner/lancet/parts_as_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <string>

#include "models/text.h"
#include "tests/planner/lancet_checker.h"
#include "tests/planner/lancet_texts.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The layer of `Layer`, all of it cut but the embedding, stage by stage.
PlainSchedule LayerInParts(int parts) {
  PlainSchedule schedule = {.order = {"embed"}, .ranges = {{.first = 1, .last = 7, .parts = parts}}};
  const std::vector<std::vector<std::string>> stages = {{"h", "gate", "send"}, {"out"}, {"ffn"}, {"back"}, {"sum"}};
  for (const auto& stage : stages) {
    for (int part = 1; part <= parts; ++part) {
      for (const std::string& id : stage) schedule.order.push_back(id + "#" + std::to_string(part));
    }
  }
  return schedule;
}

// ThereAndBack with what it took as it is and in two parts.
json MeasuredThereAndBack(double whole_s, double two_parts_s) {
  json graph = ThereAndBack(2);
  graph["measuredSteps"] = {{{"parts", 1}, {"timeS", whole_s}},
                            {{"parts", 2}, {"first", "send"}, {"last", "fetch"}, {"timeS", two_parts_s}}};
  return graph;
}

// Layer in two parts, whose gate to sum are one MoE layer; behind it something that cannot be cut, and a product.
json LayerAndTail() {
  json graph = Layer(2);
  for (size_t i = 2; i < graph["instructions"].size(); ++i) graph["instructions"][i]["layer"] = "moe";
  graph["instructions"].push_back(Step("mix", "OTHER", 0, {"sum'"}));
  graph["instructions"].push_back(Step("tail", "MATMUL", 4, {"mix'", "w"}));
  return graph;
}

// The graph with times of two parts multiplied, by the contract's words.
json AsRun(json graph, double factor) {
  std::set<std::string> exchanging, in_layers;
  for (const json& one : graph["instructions"]) {
    if (one["op"] == "ALL_TO_ALL" && one["phase"] == "FORWARD") exchanging.insert(one.value("layer", one["id"]));
  }
  for (json& one : graph["instructions"]) {
    const bool backward = one["phase"] == "BACKWARD";
    if (backward && !one.contains("forward")) continue;
    if (exchanging.contains(one.value("layer", one["id"]))) in_layers.insert(one["id"]);
    const bool exchanges = in_layers.contains(one.value("forward", one["id"]));
    const double whole_s = one["timeS"];
    const double part_s = one.contains("partTimesS") ? one["partTimesS"][1].get<double>() : whole_s / 2;
    one["partTimesS"] = {whole_s, part_s * (exchanges ? factor : std::max(1.0, factor))};
  }
  return graph;
}

void ExpectSameParts(const json& planned, const json& expected) {
  for (size_t i = 0; i < expected["instructions"].size(); ++i) {
    const json &one = planned["instructions"][i], &as_run = expected["instructions"][i];
    for (size_t k = 0; k < as_run.value("partTimesS", json::array()).size(); ++k) {
      EXPECT_NEAR(one["partTimesS"][k], as_run["partTimesS"][k], 1e-4) << one["id"] << " in " << k + 1;
    }
  }
}

TEST(PartsAsRunTest, PartsTakeWhatTheyTookInSteps) {
  const LancetOptions ranges_alone = {.passes = {.weight_gradients = false}};
  // In parts the timeline takes 18 of 24 s; all of it is in parts, so that is measured with parts of 10/9.
  const json answer = AnswerOf(MeasuredThereAndBack(12, 10), ranges_alone);
  const json& lancet = answer.at("rules").at("lancet");
  EXPECT_EQ(lancet.at("unscheduledTimeS"), 24);
  EXPECT_NEAR(lancet.at("timeS"), 20, 1e-4);
  EXPECT_THAT(answer.at("explanation").get<std::string>(), HasSubstr("take 1.11 (2 parts) times what they take alone"));
  // The answer's graph is planned alike, and not multiplied again.
  const json& planned = answer.at("graph");
  EXPECT_THAT(planned.value("measuredSteps", json::array()), IsEmpty());
  EXPECT_EQ(AnswerOf(planned, ranges_alone).at("rules").at("lancet"), lancet);
  EXPECT_EQ(LancetChecker(planned).Complaint(answer), "");
  // Parts that cost more than they save are not cut.
  const json slow = AnswerOf(MeasuredThereAndBack(12, 13), ranges_alone);
  EXPECT_THAT(slow.at("rules").at("lancet").at("partitions"), IsEmpty());
  EXPECT_EQ(slow.at("rules").at("lancet").at("timeS"), 24);
}

TEST(PartsAsRunTest, FactorsLieBetweenThoseOfMeasuredParts) {
  json graph = Layer(8);
  // 1.5 times in four parts and 3 times in eight.
  graph["measuredSteps"] = {{{"parts", 1}, {"timeS", 20}}};
  for (const auto& [parts, factor] : {std::pair{4, 1.5}, {8, 3.0}}) {
    json multiplied = graph;
    for (json& one : multiplied["instructions"]) {
      std::vector<double> part_s;
      for (int k = 1; k <= 8; ++k) part_s.push_back(one["timeS"].get<double>() / k * (k == 1 ? 1 : factor));
      one["partTimesS"] = part_s;
    }
    graph["measuredSteps"].push_back({{"parts", parts},
                                      {"first", "h"},
                                      {"last", "sum"},
                                      {"timeS", LancetChecker(multiplied).ReplayS(LayerInParts(parts))}});
  }
  PriceNotes notes;
  const auto as_run =
      WithPartsAsRun(*TrainingGraphFromProto(*FromJson<v1::TrainingGraph>(graph.dump(), "graph")), nullptr, notes);
  ASSERT_TRUE(as_run.ok()) << as_run.status().message();
  EXPECT_NEAR(as_run->factors.at(4), 1.5, 1e-4);
  EXPECT_NEAR(as_run->factors.at(8), 3, 1e-4);
  EXPECT_NEAR(as_run->graph.instructions[5].part_times_s[3], 1.5, 1e-4);  // The experts' 4 s in four parts.
  EXPECT_EQ(as_run->graph.instructions[5].part_times_s[0], 4);
  EXPECT_NEAR(as_run->graph.instructions[5].part_times_s[1], 4.0 / 2 * 1.5, 1e-4);
  EXPECT_NEAR(as_run->graph.instructions[5].part_times_s[5], 4.0 / 6 * 1.5 * std::pow(2, std::log2(1.5)), 1e-4);
  EXPECT_TRUE(notes.remarks.empty());
}

TEST(PartsAsRunTest, SavingsAreOfWhatExchanges) {
  json graph = LayerAndTail();
  // The product in two parts ends at 4; all-to-alls and experts add 3 of 2 s, halves of the sum 2 of them: with parts
  // of 3/4 the range takes 4 + 4 · 1.5 = 10 of the 20 s that it takes as it is, and the tail 4 more.
  graph["measuredSteps"] = {{{"parts", 1}, {"timeS", 24}},
                            {{"parts", 2}, {"first", "h"}, {"last", "sum"}, {"timeS", 14}}};
  const json answer = AnswerOf(graph);
  const json& lancet = answer.at("rules").at("lancet");
  EXPECT_NEAR(lancet.at("timeS"), 14, 1e-4);
  ASSERT_EQ(lancet.at("partitions").size(), 1) << lancet.at("partitions");
  EXPECT_EQ(lancet.at("partitions")[0].at("first"), "h");
  EXPECT_EQ(lancet.at("partitions")[0].at("last"), "sum");
  EXPECT_THAT(
      answer.at("explanation").get<std::string>(),
      HasSubstr("take 0.75 (2 parts) times what they take alone, as the measured steps say; below 1, those of "));
  ExpectSameParts(answer.at("graph"), AsRun(LayerAndTail(), 0.75));
  const LancetChecker checker(answer.at("graph"));
  EXPECT_EQ(checker.Complaint(answer), "");
  EXPECT_NEAR(checker.BruteForceS(), lancet.at("timeS").get<double>(), 1e-9);
}

TEST(PartsAsRunTest, WaysBackSaveWhatTheirExchangesDo) {
  json graph = MeasuredThereAndBack(24, 16);
  for (const int i : {0, 1, 2}) graph["instructions"][i]["layer"] = "moe";
  json plain = graph;
  plain.erase("measuredSteps");
  // In parts the timeline takes 18 s, all of it in the layer and on its way back: 8/9 of each.
  const json answer = AnswerOf(graph, {.passes = {.weight_gradients = false}});
  EXPECT_NEAR(answer.at("rules").at("lancet").at("timeS"), 16, 1e-4);
  ExpectSameParts(answer.at("graph"), AsRun(plain, 8.0 / 9));
  // Experts that no layer binds to the exchanges may be cut without these.
  for (const int i : {0, 1, 2}) graph["instructions"][i].erase("layer"), plain["instructions"][i].erase("layer");
  const json unbound = AnswerOf(graph, {.passes = {.weight_gradients = false}}).at("graph");
  EXPECT_EQ(unbound.at("instructions")[1].at("partTimesS"), json({4, 2}));
  const double factor = unbound.at("instructions")[0].at("partTimesS")[1].get<double>() / 2;
  EXPECT_LT(factor, 8.0 / 9);
  ExpectSameParts(unbound, AsRun(plain, factor));
}

TEST(PartsAsRunTest, RangesWithoutExchangesSaveNothing) {
  json graph = LayerAndTail();
  graph["measuredSteps"] = {{{"parts", 1}, {"timeS", 24}},
                            {{"parts", 2}, {"first", "tail"}, {"last", "tail"}, {"timeS", 12}}};
  const json answer = AnswerOf(graph);
  EXPECT_THAT(answer.at("warnings").dump(), HasSubstr("its timeline does not reach with parts of 1 times partTimesS"));
  EXPECT_EQ(answer.at("rules").at("lancet"), AnswerOf(LayerAndTail()).at("rules").at("lancet"));
}

TEST(PartsAsRunTest, WhatCannotBeComparedIsLeftOut) {
  json graph = MeasuredThereAndBack(12, 10);
  graph["maxParts"] = 1;
  EXPECT_EQ(AnswerOf(graph).at("explanation").get<std::string>().find("beside each other take"), std::string::npos);
  json uncut = Layer(2);
  uncut["measuredSteps"] = {{{"parts", 1}, {"timeS", 20}},
                            {{"parts", 2}, {"first", "embed"}, {"last", "sum"}, {"timeS", 12}}};
  EXPECT_THAT(AnswerOf(uncut).at("warnings").dump(), HasSubstr("measuredSteps of 2 parts: embed to sum cannot be cut"));
}

TEST(PartsAsRunTest, WhatNoTimelineReachesIsSaid) {
  for (const auto& [took_s, factor] : {std::pair{0.01, "0.125"}, {1000.0, "8"}}) {
    const json answer = AnswerOf(MeasuredThereAndBack(10, took_s));
    EXPECT_THAT(answer.at("warnings").dump(), AllOf(HasSubstr("measuredSteps of 2 parts: "),
                                                    HasSubstr("of the step as it is, which its timeline does not "),
                                                    HasSubstr(StrCat("parts of ", factor, " times"))));
  }
}

TEST(PartsAsRunTest, TheLargestGraphsTakeSeconds) {
  json graph = Graph({}, 64);
  for (int i = 0; i < kMostInstructions; ++i) {
    const std::string read = i == 0 ? "x" : StrCat("i", i - 1, "'");
    graph["instructions"].push_back(Step(StrCat("i", i), "MATMUL", 1, {read}));
  }
  graph["instructions"][0]["op"] = "OTHER";
  graph["measuredSteps"] = {{{"parts", 1}, {"timeS", 1}}};
  for (const int parts : {2, 64}) {
    graph["measuredSteps"].push_back(
        {{"parts", parts}, {"first", "i1"}, {"last", StrCat("i", kMostInstructions - 1)}, {"timeS", 1.1}});
  }
  PriceNotes notes;
  const TrainingGraph parsed = *TrainingGraphFromProto(*FromJson<v1::TrainingGraph>(graph.dump(), "graph"));
  const auto begin = std::chrono::steady_clock::now();
  const auto as_run = WithPartsAsRun(parsed, nullptr, notes);
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s\n";
  ASSERT_TRUE(as_run.ok());
  EXPECT_NEAR(as_run->factors.at(64), 1.1, 0.05);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(WithPartsAsRun(parsed, nullptr, notes, stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(PartsAsRunTest, WrongStepsAreRefused) {
  const auto with = [](const std::string& pointer, const json& value) {
    json graph = MeasuredThereAndBack(12, 10);
    graph[json::json_pointer("/measuredSteps" + pointer)] = value;
    return Refusal(graph);
  };
  EXPECT_EQ(with("/0/parts", 2), "measuredSteps[0].parts: found 2, expected 1, the step as it is");
  EXPECT_EQ(with("/1/parts", 1), "measuredSteps[1].parts: found 1, expected more than 1 and at most 64");
  EXPECT_EQ(with("/1/parts", 65), "measuredSteps[1].parts: found 65, expected more than 1 and at most 64");
  EXPECT_THAT(with("/1/timeS", 0), HasSubstr("measuredSteps[1].timeS: found 0, expected a finite number above 0"));
  EXPECT_EQ(with("/0/first", "send"), "measuredSteps[0].first: found send, expected none where nothing was cut");
  EXPECT_EQ(with("/1/first", "who"), "measuredSteps[1].first: found 'who', expected the id of an instruction");
  EXPECT_EQ(
      with("/1/last", "ffn.dx"),
      "measuredSteps[1]: found a range that has instructions[3] (fetch.dx), expected instructions in phase FORWARD "
      "alone");
  json many = MeasuredThereAndBack(12, 10);
  for (int parts = 3; parts <= 9; ++parts) {
    many["measuredSteps"].push_back(many["measuredSteps"][1]);
    many["measuredSteps"].back()["parts"] = parts;
  }
  EXPECT_EQ(Refusal(many), "measuredSteps: found 9, expected at most 8");
  json backwards = MeasuredThereAndBack(12, 10);
  backwards["measuredSteps"][1].update({{"first", "fetch"}, {"last", "send"}});
  EXPECT_EQ(Refusal(backwards), "measuredSteps[1].last: found send, expected fetch or one behind it");
}

}  // namespace
}  // namespace moeplan::planner
