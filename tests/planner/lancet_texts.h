// Training graphs as JSON, and their answers, as `moeplan plan --graph` has them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/lancet/timed_graph.h"
#include "planner/rules/lancet.h"
#include "proto/convert/plan.h"
#include "proto/convert/training_graph.h"
#include "proto/json.h"

namespace moeplan::planner {

using nlohmann::json;

inline StatusOr<GraphPlanAnswer> PlanOf(const json& graph, const Profile* profile = nullptr,
                                        const LancetOptions& options = {}) {
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::TrainingGraph>(graph.dump(), "graph"));
  ASSIGN_OR_RETURN(const TrainingGraph parsed, TrainingGraphFromProto(message));
  return PlanGraph(parsed, profile, options);
}

inline json AnswerOf(const json& graph, const LancetOptions& options = {}) {
  const auto answer = PlanOf(graph, nullptr, options);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? json::parse(ToJson(ToProto(*answer))) : json();
}

// Every time is in the graph.
inline TimedGraph Timed(const json& graph) {
  const TrainingGraph parsed = *TrainingGraphFromProto(*FromJson<v1::TrainingGraph>(graph.dump(), "graph"));
  PriceNotes notes;
  return *TimeGraph(parsed, nullptr, notes);
}

inline std::string Refusal(const json& graph, const Profile* profile = nullptr) {
  const auto answer = PlanOf(graph, profile);
  EXPECT_FALSE(answer.ok());
  return answer.status().message();
}

inline json Step(const std::string& id, const std::string& op, double time_s, std::vector<std::string> inputs,
                 const std::string& phase = "FORWARD") {
  return {{"id", id}, {"op", op}, {"timeS", time_s}, {"inputs", inputs}, {"outputs", {id + "'"}}, {"phase", phase}};
}

// Its parts take an even share of its time.
inline json Evenly(json step, int parts = 8) {
  std::vector<double> part_s;
  for (int k = 1; k <= parts; ++k) part_s.push_back(step["timeS"].get<double>() / k);
  step["partTimesS"] = part_s;
  return step;
}

inline json Graph(std::vector<json> instructions, int max_parts = 8) {
  return {{"instructions", instructions}, {"maxParts", max_parts}};
}

// An MoE layer behind one matrix product, each instruction of 4 s.
inline json Layer(int max_parts) {
  return Graph({Step("embed", "OTHER", 0, {"tokens"}), Step("h", "MATMUL", 4, {"embed'", "w"}),
                Step("gate", "GATE", 0, {"h'"}), Step("send", "DISPATCH", 0, {"h'", "gate'"}),
                Evenly(Step("out", "ALL_TO_ALL", 4, {"send'"})), Step("ffn", "EXPERT", 4, {"out'", "we"}),
                Evenly(Step("back", "ALL_TO_ALL", 4, {"ffn'"})), Step("sum", "COMBINE", 4, {"back'"})},
               max_parts);
}

// An exchange, experts and an exchange of 4 s each, there and back; `back_part_s`: of each half on the way back.
inline json ThereAndBack(double back_part_s) {
  json graph = Graph({Evenly(Step("send", "ALL_TO_ALL", 4, {"x"}), 2), Evenly(Step("ffn", "EXPERT", 4, {"send'"}), 2),
                      Evenly(Step("fetch", "ALL_TO_ALL", 4, {"ffn'"}), 2)},
                     2);
  const auto add = [&](const std::string& id, const std::string& op, const std::string& input,
                       const std::string& forward) {
    json one = Step(id, op, 4, {input}, "BACKWARD");
    one["forward"] = forward;
    one["partTimesS"] = {4, back_part_s};
    graph["instructions"].push_back(one);
  };
  add("fetch.dx", "ALL_TO_ALL", "fetch'", "fetch");
  add("ffn.dx", "EXPERT", "fetch.dx'", "ffn");
  add("ffn.dw", "EXPERT", "fetch.dx'", "ffn");
  add("send.dx", "ALL_TO_ALL", "ffn.dx'", "send");
  graph["instructions"][5]["weightGradient"] = true;
  return graph;
}

}  // namespace moeplan::planner
