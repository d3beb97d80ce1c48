// Asks the C++ JobPlanner what the Python package is asked, so that tests can compare both.
//
// Usage: job_planner_program ADDRESS NODES GPUS_PER_NODE FOLDER < REQUESTS
// Reads one PlanRequest a line, as JSON, and prints one answer a line:
//   {"origin", "why", "answeredAt", "response": {a PlanResponse}}  or  {"code", "error"}
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "moeplan/v1/plan.pb.h"
#include "planner/client/job_planner.h"
#include "proto/json.h"

namespace {

using nlohmann::json;

const char* NameOf(moeplan::client::PlanOrigin origin) {
  switch (origin) {
    case moeplan::client::PlanOrigin::kPlanner: return "PLANNER";
    case moeplan::client::PlanOrigin::kKept: return "KEPT";
    case moeplan::client::PlanOrigin::kBaseline: return "BASELINE";
  }
  return "?";
}

json Answer(moeplan::client::JobPlanner& planner, const std::string& line) {
  const auto error = [](const moeplan::Status& status) {
    return json{{"code", moeplan::Name(status.code())}, {"error", status.message()}};
  };
  const auto request = moeplan::FromJson<moeplan::v1::PlanRequest>(line, "request");
  if (!request.ok()) return error(request.status());
  const auto plan = planner.Plan(*request);
  if (!plan.ok()) return error(plan.status());
  return {{"origin", NameOf(plan->origin)},
          {"why", plan->why},
          {"answeredAt", plan->answered_at},
          {"response", json::parse(moeplan::ToJson(plan->answer))}};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return std::fputs("usage: job_planner_program ADDRESS NODES GPUS_PER_NODE FOLDER\n", stderr), 2;
  moeplan::client::JobPlannerOptions options;
  options.planner.address = arguments[1];
  options.cluster = {.nodes = std::atoi(arguments[2]), .gpus_per_node = std::atoi(arguments[3])};
  options.folder = arguments[4];
  moeplan::client::JobPlanner planner(options);
  for (std::string line; std::getline(std::cin, line);) std::cout << Answer(planner, line) << std::endl;
}
