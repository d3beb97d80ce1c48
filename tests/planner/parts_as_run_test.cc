#include "planner/lancet/parts_as_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stop_token>

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
