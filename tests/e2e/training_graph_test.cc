// A training step from its model to its run: `moeplan graph | calibrate --graph | graph | plan --graph | run`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// Two nodes of two GPUs whose network is slow enough for exchanges to be half of a step.
constexpr const char* kCluster = R"({"name": "two-by-two", "nodes": 2, "gpusPerNode": 2,
  "gpu": {"peakFlopsPerS": 1.3e14, "gemmEfficiency": 0.7, "memoryBytesPerS": 1.5e12, "deviceMemoryBytes": 4e10,
          "launchS": 5e-6},
  "gpuLink": {"kind": "SWITCHED", "bytesPerS": 1e11, "latencyS": 3e-6},
  "nic": {"perNode": 1, "bytesPerS": 4e9, "latencyS": 1e-5}})";

constexpr const char* kModel = R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 4, "n_embd": 512,
  "n_head": 8, "n_positions": 512, "vocab_size": 4096, "num_experts": 8, "num_experts_per_tok": 1,
  "decoder_sparse_step": 2})";

class TrainingGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_ = folder_.Write("cluster.json", kCluster);
    model_ = folder_.Write("model.json", kModel);
  }

  Outcome Graph(const std::string& profile) {
    std::vector<std::string> command = {"graph", "--profile",         profile, "--model", model_,  "--batch",
                                        "8",     "--sequence-length", "512",   "--gate",  "SWITCH"};
    command.insert(command.end(), degrees_.begin(), degrees_.end());
    return RunMoeplan(command);
  }

  // A profile that has what the graph asks for, at its sizes, and the graph priced by it.
  void MeasureGraph() {
    const Outcome rough = RunMoeplan({"calibrate", "--simulated", cluster_, "--db", folder_ / "m.db", "--profile-name",
                                      "rough", "--budget", "20s", "--json"});
    ASSERT_EQ(rough.exit_code, 0) << rough.err;
    const Outcome first = Graph(folder_.Write("rough.json", rough.out));
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const Outcome measured =
        RunMoeplan({"calibrate", "--simulated", cluster_, "--db", folder_ / "m.db", "--profile-name", "fine", "--graph",
                    folder_.Write("first.json", first.out), "--budget", "60s", "--json"});
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    profile_ = folder_.Write("fine.json", measured.out);
    const Outcome graph = Graph(profile_);
    ASSERT_EQ(graph.exit_code, 0) << graph.err;
    EXPECT_THAT(graph.err, IsEmpty());
    graph_ = folder_.Write("graph.json", graph.out);
  }

  TemporaryFolder folder_;
  std::vector<std::string> degrees_ = {"--expert-parallel", "4"};
  std::string cluster_, model_, profile_, graph_;
};

TEST_F(TrainingGraphTest, APlannedStepRunsAsPredicted) {
  MeasureGraph();
  const Outcome planned = RunMoeplan({"plan", "--profile", profile_, "--graph", graph_, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json lancet = Json::parse(planned.out).at("rules").at("lancet");
  EXPECT_FALSE(lancet.at("weightGradients").empty());
  EXPECT_FALSE(lancet.at("partitions").empty());
  const double step_s = lancet.at("timeS"), given_s = lancet.at("unscheduledTimeS");
  EXPECT_LT(step_s, 0.95 * given_s);

  const std::string plan = folder_.Write("plan.json", planned.out), trace = folder_ / "trace.json";
  const Outcome run = RunMoeplan({"run", "--plan", plan, "--simulated", cluster_, "--trace", trace, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report.at("schedule"), "LANCET");
  EXPECT_EQ(report.at("predictedTimeS"), step_s);
  EXPECT_EQ(report.at("ranks").size(), 4u);
  EXPECT_NEAR(report.at("measuredTimeS").get<double>() / step_s, 1, 0.03);
  const Outcome given =
      RunMoeplan({"run", "--plan", plan, "--simulated", cluster_, "--schedule", "UNSCHEDULED", "--json"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  const Json unscheduled = Json::parse(given.out);
  EXPECT_EQ(unscheduled.at("schedule"), "UNSCHEDULED");
  EXPECT_NEAR(unscheduled.at("measuredTimeS").get<double>() / given_s, 1, 0.03);
  const double gain_s = unscheduled.at("measuredTimeS").get<double>() - report.at("measuredTimeS").get<double>();
  EXPECT_NEAR(gain_s, given_s - step_s, 0.02 * given_s);

  // One trace has both: every launch of the order, predicted and on four ranks.
  const Json events = Json::parse(ReadFile(trace)).at("traceEvents");
  const auto tasks = std::ranges::count_if(events, [](const Json& event) { return event.at("ph") == "X"; });
  EXPECT_EQ(tasks, 5 * static_cast<long>(lancet.at("timeline").size()));
}

// Both stages send each other what the graph of one of them says.
TEST_F(TrainingGraphTest, APlannedStageRunsAsPredicted) {
  degrees_ = {"--expert-parallel", "2", "--pipeline-parallel", "2", "--stage", "0", "--gpus", "4"};
  MeasureGraph();
  const Outcome planned = RunMoeplan({"plan", "--profile", profile_, "--graph", graph_, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json lancet = Json::parse(planned.out).at("rules").at("lancet");
  const std::string plan = folder_.Write("plan.json", planned.out);
  const auto measured_s = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {"run", "--plan", plan, "--simulated", cluster_, "--json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome run = RunMoeplan(command);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.exit_code == 0 ? Json::parse(run.out).at("measuredTimeS").get<double>() : 0;
  };
  EXPECT_NEAR(measured_s({}) / lancet.at("timeS").get<double>(), 1, 0.03);
  EXPECT_NEAR(measured_s({"--schedule", "UNSCHEDULED"}) / lancet.at("unscheduledTimeS").get<double>(), 1, 0.03);
}

// Pairs on two nodes share the nodes' interfaces, of which each carries 4 GB/s each way; pairs on one have links of
// 100.
TEST_F(TrainingGraphTest, AMessageGoesOverTheLinksOfItsPair) {
  const auto taken_s = [&](int ranks_per_node) {
    const Json send = {{"id", "s"},    {"op", "SEND"},   {"timeS", 1},
                       {"bytes", 4e6}, {"groupSize", 2}, {"ranksPerNode", ranks_per_node}};
    const Json graph = {{"maxParts", 1}, {"instructions", {send}}};
    const Outcome planned = RunMoeplan({"plan", "--graph", folder_.Write("graph.json", graph.dump()), "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    const Outcome run =
        RunMoeplan({"run", "--plan", folder_.Write("plan.json", planned.out), "--simulated", cluster_, "--json"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.exit_code == 0 ? Json::parse(run.out).at("measuredTimeS").get<double>() : 0;
  };
  EXPECT_NEAR(taken_s(1), 2 * 4e6 / 4e9, 1e-4);  // Of two GPUs through one interface.
  EXPECT_NEAR(taken_s(2), 4e6 / 1e11, 2e-5);
}

// Real ranks compute and send: what a step takes there is no time that a file says.
TEST_F(TrainingGraphTest, RealRanksRunAStepByItsTimes) {
  const Json graph = Json::parse(R"({"instructions": [
    {"id": "x", "op": "MATMUL", "timeS": 0.004, "inputs": ["tokens"], "outputs": ["x.y"]},
    {"id": "a", "op": "ALL_TO_ALL", "phase": "BACKWARD", "timeS": 0.004, "bytes": 65536, "groupSize": 2, "ranksPerNode": 2,
     "inputs": ["x.y"], "outputs": ["a.y"]},
    {"id": "s", "op": "SEND", "phase": "BACKWARD", "timeS": 0.001, "bytes": 4096, "groupSize": 2, "ranksPerNode": 2,
     "inputs": ["a.y"]},
    {"id": "dw", "op": "MATMUL", "phase": "BACKWARD", "timeS": 0.002, "weightGradient": true, "inputs": ["x.y"]}]})");
  const std::string file = folder_.Write("graph.json", graph.dump());
  const Outcome planned = RunMoeplan({"plan", "--graph", file, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Outcome run = RunMoeplan({"run", "--plan", folder_.Write("plan.json", planned.out), "--local", "2", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report.at("ranks").size(), 2u);
  EXPECT_GT(report.at("measuredTimeS").get<double>(), 0.002);
  EXPECT_FALSE(report.at("valuesComputed").get<bool>());
  // A simulated GPU takes the times as they are, and the exchange what its links take.
  const Outcome simulated = RunMoeplan({"run", "--plan", folder_ / "plan.json", "--simulated", cluster_, "--json"});
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_GE(Json::parse(simulated.out).at("measuredTimeS").get<double>(), 0.006);
}

TEST_F(TrainingGraphTest, WhatCannotRunIsRefusedByName) {
  const auto plan_of = [&](const Json& graph) {
    const Outcome planned = RunMoeplan({"plan", "--graph", folder_.Write("graph.json", graph.dump()), "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    return Json::parse(planned.out);
  };
  const auto error_of = [&](const Json& plan, std::vector<std::string> more) {
    std::vector<std::string> command = {"run", "--plan", folder_.Write("plan.json", plan.dump()), "--simulated",
                                        cluster_};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome run = RunMoeplan(command);
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    return run.err;
  };
  const Json exchange = {{"id", "a"}, {"op", "ALL_TO_ALL"}, {"phase", "BACKWARD"}, {"timeS", 1}, {"outputs", {"y"}}};
  const Json plan = plan_of({{"instructions", {exchange}}});
  EXPECT_THAT(error_of(plan, {}), HasSubstr("a: found no bytes, groupSize and ranksPerNode"));
  EXPECT_THAT(error_of(plan, {"--schedule", "PARM_S1"}),
              AllOf(HasSubstr("--schedule: found PARM_S1"), HasSubstr("LANCET or UNSCHEDULED")));
  EXPECT_THAT(error_of(plan, {"--db", folder_ / "m.db"}), HasSubstr("--db: found beside the plan of a training graph"));
  Json other = exchange;
  other.update({{"bytes", 4096}, {"groupSize", 64}, {"ranksPerNode", 2}});
  EXPECT_THAT(error_of(plan_of({{"instructions", {other}}}), {}), HasSubstr("no such groups among 4 ranks"));
  Json without = plan;
  without.erase("graph");
  EXPECT_THAT(error_of(without, {}), HasSubstr("graph: found nothing"));
  Json wrong = plan;
  wrong["rules"]["lancet"]["order"] = {"b"};
  EXPECT_THAT(error_of(wrong, {}), HasSubstr("rules.lancet.order[0]: found b"));
}

}  // namespace
}  // namespace moeplan::testing
