// `moeplan plan` for layers whose router favours some experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kProfile = std::string(MOEPLAN_EXAMPLES) + "/profile-8x8.json";
const std::string kWorkload = std::string(MOEPLAN_EXAMPLES) + "/workload.json";  // 8 experts, top 2, EP 2.

std::string WorkloadWith(const TemporaryFolder& folder, const Json& routing) {
  Json workload = Json::parse(ReadFile(kWorkload));
  if (!routing.is_null()) workload["routing"] = routing;
  return folder.Write("workload.json", workload.dump());
}

Outcome Plan(const std::string& workload, std::vector<std::string> more = {"--json"}) {
  std::vector<std::string> arguments = {"plan", "--profile", kProfile, "--workload", workload};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunMoeplan(arguments);
}

Json AnswerOf(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? Json::parse(outcome.out) : Json();
}

void ExpectRefused(const Outcome& outcome, const std::string& what) {
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr(what));
}

TEST(RoutingCommandTest, EvenRoutingIsAnsweredAsNoneAndReported) {
  const TemporaryFolder folder;
  const Json none = AnswerOf(Plan(kWorkload));
  EXPECT_FALSE(none.contains("routing"));
  EXPECT_FALSE(none.at("workload").contains("routing"));
  const Json even = AnswerOf(Plan(WorkloadWith(folder, {{"tokensPerExpert", Json::array({3, 3, 3, 3, 3, 3, 3, 3})}})));
  EXPECT_EQ(even.at("candidates"), none.at("candidates"));
  EXPECT_EQ(even.at("routing").at("busiestRankRatio"), 1);
  EXPECT_EQ(even.at("routing").at("droppedShare"), 0);
}

TEST(RoutingCommandTest, UnevenRoutingIsReportedWithWhatBalancingGains) {
  const TemporaryFolder folder;
  // Of 2,048 pairs 512 512 256 256 | 128 ·4; T = 320: 2·192 are dropped.
  const Json answer =
      AnswerOf(Plan(WorkloadWith(folder, {{"tokensPerExpert", Json::array({4, 4, 2, 2, 1, 1, 1, 1})}})));
  const Json& routing = answer.at("routing");
  EXPECT_EQ(routing.at("busiestExpertRatio"), 2);
  EXPECT_EQ(routing.at("droppedShare"), 384.0 / 2048);
  EXPECT_EQ(routing.at("capacity").at("capacityFactor"), 2);
  EXPECT_EQ(routing.at("capacity").at("slots"), 512);
  EXPECT_EQ(routing.at("placement").at("physicalToLogical").size(), 8U);
  EXPECT_EQ(routing.at("replicas").at("copies"), Json::array({2, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(routing.at("replicas").at("droppedShare"), 0);
  for (const char* remedy : {"capacity", "placement", "replicas"})
    EXPECT_GT(routing.at(remedy).at("predictedTimeS").get<double>(), 0) << remedy;
  // Asked again as the report says, the planner says the same.
  Json placed = Json::array();
  for (const Json& expert : routing.at("placement").at("physicalToLogical"))
    placed.push_back(answer.at("workload").at("routing").at("tokensPerExpert").at(expert.get<size_t>()));
  EXPECT_EQ(AnswerOf(Plan(WorkloadWith(folder, {{"tokensPerExpert", placed}}))).at("best").at("predictedTimeS"),
            routing.at("placement").at("predictedTimeS"));
  EXPECT_THAT(Plan(WorkloadWith(folder, {{"skew", 1}}), {}).out,
              HasSubstr("routing: the busiest expert gets 2.94 times the mean"));  // 8 / (1 + 1/2 + ... + 1/8).
}

TEST(RoutingCommandTest, ATraceIsAnsweredAsItsCounts) {
  const TemporaryFolder folder;
  const std::string first = folder.Write(
      "router_trace_rank0.jsonl",
      R"({"step": 0, "block": "decoder", "layer": 1, "rank": 0, "num_tokens": 3, "topk": 2, "top_indices": [[0, 1], [0, 2], [0, 7]]}
{"step": 0, "block": "decoder", "layer": 2, "rank": 0, "num_tokens": 1, "topk": 2, "top_indices": [[5, 6]]}
)");
  const std::string second = folder.Write(
      "router_trace_rank1.jsonl",
      R"({"step": 0, "block": "decoder", "layer": 1, "rank": 1, "num_tokens": 1, "topk": 2, "top_indices": [[3, 4]]}
)");
  const Json traced = AnswerOf(Plan(kWorkload, {"--json", "--router-layer", "1", "--router-trace", first, second}));
  const Json counts = {3, 1, 1, 1, 1, 0, 0, 1};
  EXPECT_EQ(traced.at("workload").at("routing").at("tokensPerExpert"), counts);
  EXPECT_EQ(traced, AnswerOf(Plan(WorkloadWith(folder, {{"tokensPerExpert", counts}}))));
  const Json all = AnswerOf(Plan(kWorkload, {"--json", "--router-trace", first, "--router-trace", second}));
  EXPECT_EQ(all.at("workload").at("routing").at("tokensPerExpert"), Json({3, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(RoutingCommandTest, WrongRoutingNamesTheFieldOrTheLine) {
  const TemporaryFolder folder;
  const auto refused = [&](const Json& routing, const std::string& what) {
    ExpectRefused(Plan(WorkloadWith(folder, routing)), what);
  };
  refused({{"tokensPerExpert", Json::array({1, 2})}}, "routing.tokensPerExpert: found 2 counts");
  refused({{"tokensPerExpert", Json::array({1, 1, 1, 1, 1, 1, 1, -1})}}, "routing.tokensPerExpert[7]: found -1");
  refused({{"tokensPerExpert", Json::array({0, 0, 0, 0, 0, 0, 0, 0})}}, "only zeros");
  refused({{"skew", -0.5}}, "routing.skew: found -0.5");
  refused({{"skew", 1}, {"tokensPerExpert", Json::array({1, 1, 1, 1, 1, 1, 1, 1})}}, "expected exactly one of them");
  refused(Json::object(), "expected exactly one of them");
  refused({{"zipf", 1}}, "routing.zipf");

  const std::string trace = folder.Write("trace.jsonl", "{\"top_indices\": [[0, 1]]}\n{\"top_indices\": [[0, 8]]}\n");
  ExpectRefused(Plan(kWorkload, {"--router-trace", trace}), "trace.jsonl:2.top_indices[0][1]: found 8");
  ExpectRefused(Plan(kWorkload, {"--router-trace", folder / "absent.jsonl"}), "absent.jsonl");
  ExpectRefused(Plan(kWorkload, {"--router-layer", "1"}), "--router-layer: found alone");
  ExpectRefused(Plan(WorkloadWith(folder, {{"skew", 1}}), {"--router-trace", trace}),
                "--router-trace: found beside routing");
  ExpectRefused(RunMoeplan({"plan", "--graph", trace, "--router-trace", trace}),
                "--router-trace: found beside --graph");
}

TEST(RoutingCommandTest, SkewCanBeSwept) {
  const TemporaryFolder folder;
  const Outcome outcome = RunMoeplan({"what-if", "--profile", kProfile, "--workload", WorkloadWith(folder, nullptr),
                                      "--sweep", "routing.skew=0,0.5,1", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out).at("rows").size(), 3U);
}

}  // namespace
}  // namespace moeplan::testing
