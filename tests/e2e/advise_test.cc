// `moeplan advise`, `export` and `check` as people use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

using Words = std::vector<std::string>;

Words Question(const Words& more) {
  Words words = {"advise",         "--model", "qwen3-30b-a3b",     "--hardware", "h100-sxm:8x8",
                 "--global-batch", "512",     "--sequence-length", "4096"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json Advice(const Words& more = {}) {
  Words words = Question(more);
  words.emplace_back("--json");
  const Outcome outcome = RunMoeplan(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

std::string Quoted(const Json& tokens) {
  std::string text;
  for (const Json& token : tokens) {
    EXPECT_EQ(token.get<std::string>().find(' '), std::string::npos) << token;
    text += "'" + token.get<std::string>() + "' ";
  }
  return text;
}

// The settings that are advised are taken by the system's own rules, and say the layout that was advised.
TEST(AdviseCommandTest, WhatIsAdvisedCanBeLaunchedAndTakesAsLong) {
  for (const char* target : {"megatron", "bridge", "torchtitan"}) {
    const Json advice = Advice({"--to", target});
    const Outcome checked = RunMoeplan({"check", "--to", target, "--gpus", "64", "--model", "qwen3-30b-a3b",
                                        "--arguments", Quoted(advice.at("export").at("arguments")), "--json"});
    ASSERT_EQ(checked.exit_code, 0) << checked.out;
    const Json layout = Json::parse(checked.out).at("layout");
    const Outcome step =
        RunMoeplan({"step", "--model", "qwen3-30b-a3b", "--hardware", "h100-sxm:8x8", "--gpus", "64", "--global-batch",
                    "512", "--sequence-length", "4096", "--layout", layout.dump(), "--json"});
    ASSERT_EQ(step.exit_code, 0) << step.err;
    const double step_s = Json::parse(step.out).at("stepTimeS"), advised_s = advice.at("step").at("stepTimeS");
    EXPECT_NEAR(step_s, advised_s, 1e-9 * advised_s) << target;
    EXPECT_TRUE(advice.at("export").at("notExpressible").empty()) << target;
    EXPECT_GE(advice.at("gain"), 1) << target;
    EXPECT_LE(advice.at("gainLow"), advice.at("gain"));
    EXPECT_LE(advice.at("gain"), advice.at("gainHigh"));
  }
}

// Models without experts have flags, too, and they say no dispatcher.
TEST(AdviseCommandTest, ADenseModelIsAnswered) {
  const Outcome outcome = RunMoeplan({"advise", "--model", "llama3-8b", "--hardware", "h100-sxm:2x8", "--global-batch",
                                      "64", "--sequence-length", "8192", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json advice = Json::parse(outcome.out);
  const Outcome checked = RunMoeplan({"check", "--to", "megatron", "--gpus", "16", "--model", "llama3-8b",
                                      "--arguments", Quoted(advice.at("export").at("arguments")), "--json"});
  ASSERT_EQ(checked.exit_code, 0) << checked.out;
  const Outcome step =
      RunMoeplan({"step", "--model", "llama3-8b", "--hardware", "h100-sxm:2x8", "--gpus", "16", "--global-batch", "64",
                  "--sequence-length", "8192", "--layout", Json::parse(checked.out).at("layout").dump(), "--json"});
  ASSERT_EQ(step.exit_code, 0) << step.err;
  EXPECT_EQ(Json::parse(step.out).at("stepTimeS"), advice.at("step").at("stepTimeS"));
}

// The network is told as JSON or its file, and every command that takes hardware takes it.
TEST(AdviseCommandTest, HardwareIsPricedOnTheNetworkThatJoinsIt) {
  const TemporaryFolder folder;
  const std::string network = "{\"nodesPerLeaf\": 2, \"oversubscription\": 8}";
  const Words job = {"--model", "qwen3-30b-a3b",  "--hardware", "h100-sxm:8x8",      "--gpus",
                     "64",      "--global-batch", "512",        "--sequence-length", "4096"};
  const auto run = [&](const char* command, const Words& more) {
    Words words = {command};
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), more.begin(), more.end());
    return RunMoeplan(words);
  };
  const auto step_s = [&](const Words& more) {
    Words words = {"--layout", "{\"expertParallel\": 64}", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run("step", words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return Json::parse(outcome.out).at("stepTimeS").get<double>();
  };
  const double plain_s = step_s({}), slow_s = step_s({"--network", network});
  EXPECT_GT(slow_s, 2 * plain_s);
  EXPECT_EQ(step_s({"--network", folder.Write("network.json", network)}), slow_s);
  EXPECT_EQ(step_s({"--network", "{}"}), plain_s);
  const Words sweep = {"--layout", "{}", "--sweep", "expertParallel=64", "--dispatchers", "ALL_TO_ALL"};
  Words told = sweep;
  told.insert(told.end(), {"--network", network});
  EXPECT_NE(run("what-if", told).out, run("what-if", sweep).out);
  EXPECT_NE(run("layout", {"--network", network}).out, run("layout", {}).out);
  EXPECT_LE(Advice({"--network", network}).at("layout").at("expertParallel").get<int>(),
            Advice().at("layout").at("expertParallel").get<int>());
}

TEST(AdviseCommandTest, AWrongNetworkIsRefusedByField) {
  const auto refused = [](const Words& words) {
    const Outcome outcome = RunMoeplan(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    return outcome.err;
  };
  const auto network = [&](const std::string& json) { return refused(Question({"--network", json})); };
  EXPECT_THAT(network("{\"nodesPerLeaf\": -1}"), HasSubstr("--network: nodesPerLeaf: found -1, expected a whole"));
  EXPECT_THAT(network("{\"oversubscription\": 0.9}"), HasSubstr("--network: oversubscription: found 0.9, expected"));
  EXPECT_THAT(network("{\"bytesPerS\": 0}"), HasSubstr("--network: bytesPerS: found 0, expected a number from 1"));
  EXPECT_THAT(network("{\"rails\": 1}"), HasSubstr("--network: rails: found 1, expected"));
  EXPECT_THAT(network("{\"nodePerLeaf\": 1}"),
              HasSubstr("--network: nodePerLeaf: found an unknown field (did you mean nodesPerLeaf?)"));
  EXPECT_THAT(network("no-such-file.json"), HasSubstr("no-such-file.json"));
  const std::string profile = std::string(MOEPLAN_EXAMPLES) + "/profile-8x8.json";
  EXPECT_THAT(refused({"layout", "--profile", profile, "--model", "mixtral-8x7b", "--gpus", "64", "--global-batch",
                       "64", "--sequence-length", "4096", "--network", "{}"}),
              HasSubstr("--network: found it without --hardware, expected it beside --hardware"));
  const std::string contract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
  EXPECT_THAT(refused({"what-if", "--profile", contract + "profile.example.json", "--workload",
                       contract + "workload.example.json", "--sweep", "layer.batch=1", "--network", "{}"}),
              HasSubstr("--network: found it without --hardware"));
}

TEST(AdviseCommandTest, TheAnswerIsShort) {
  const Outcome longest = RunMoeplan({"advise", "--model", "deepseek-v3", "--hardware", "h100-sxm:128x8",
                                      "--global-batch", "8192", "--sequence-length", "4096"});
  EXPECT_LE(std::ranges::count(longest.out, '\n'), 30);
  const Outcome outcome = RunMoeplan(Question({}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_LE(count, 30);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("take "), HasSubstr("because "), HasSubstr("next best "),
                                 HasSubstr("usual "), HasSubstr("--expert-model-parallel-size")));
}

TEST(AdviseCommandTest, MineMayBeALaunchScriptAndItsMeasuredStepGivesTheFactor) {
  const TemporaryFolder folder;
  const std::string script =
      folder.Write("train.sh",
                   "TP=2\nMOE=(--moe-token-dispatcher-type alltoall\n  --expert-model-parallel-size ${EP:-8})\n"
                   "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --sequence-parallel \\\n"
                   "  --expert-tensor-parallel-size 1 \\\n"
                   "  ${MOE[@]} --recompute-granularity full \\\n"
                   "  --recompute-method uniform --recompute-num-layers 1 --bf16 \\\n"
                   "  --use-distributed-optimizer --micro-batch-size 1 --data-path /data\n");
  const Json advice = Advice({"--mine", script, "--measured-step", "5"});
  EXPECT_FALSE(advice.at("mineIsUsual"));
  const Json& mine = advice.at("mine");
  EXPECT_EQ(mine.at("layout").at("tensorParallel"), 2);
  EXPECT_EQ(mine.at("layout").at("expertParallel"), 8);
  EXPECT_EQ(mine.at("layout").at("recompute"), "FULL");
  // Settings that would fight with the advised ones.
  EXPECT_THAT(advice.at("removeArguments").dump(), HasSubstr("--recompute-granularity"));
  const double factor = advice.at("softwareFactor");
  EXPECT_NEAR(factor, 5 / mine.at("step").at("stepTimeS").get<double>(), 1e-9);
  EXPECT_NEAR(advice.at("expectedStepTimeS"), factor * advice.at("step").at("stepTimeS").get<double>(), 1e-9);
  EXPECT_GT(advice.at("gain"), 1.2);
  // The same as a layout.
  const Json as_layout = Advice({"--mine", mine.at("layout").dump()});
  EXPECT_NEAR(as_layout.at("gain"), advice.at("gain").get<double>(), 1e-9);
}

TEST(AdviseCommandTest, AgainstAnOlderAnswerItSaysWhatMoved) {
  const TemporaryFolder folder;
  const Json same = Advice();
  const std::string old = folder.Write("old.json", same.dump());
  EXPECT_TRUE(Advice({"--against", old}).at("changed").at("decisions").empty());
  // Exchanges that took a fifth of the time once.
  Json before = same;
  for (Json& cost : before["costs"]) {
    if (!cost.at("cost").get<std::string>().starts_with("ALL_TO_ALL")) continue;
    for (const char* time : {"timeS", "lowS", "highS"}) cost[time] = cost.at(time).get<double>() / 5;
  }
  before["layout"]["dispatcher"] = "ALL_TO_ALL";
  const Json changed = Advice({"--against", folder.Write("before.json", before.dump())}).at("changed");
  ASSERT_FALSE(changed.at("costs").empty());
  EXPECT_THAT(changed.at("costs")[0].get<std::string>(), HasSubstr("5.00 times as long as before"));
  ASSERT_FALSE(changed.at("decisions").empty());
  EXPECT_THAT(changed.at("decisions")[0].get<std::string>(), HasSubstr("instead of dispatcher ALL_TO_ALL"));
}

// Flags of a dense model say nothing of experts, whatever Megatron's defaults for these are.
TEST(AdviseCommandTest, FlagsOfADenseModelAreALayout) {
  const Outcome outcome = RunMoeplan(
      {"advise", "--model", "llama3-8b", "--hardware", "h100-sxm:2x8", "--global-batch", "64", "--sequence-length",
       "8192", "--json", "--mine", "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out).at("mine").at("layout").at("tensorParallel"), 2);
  EXPECT_THAT(outcome.err, Not(HasSubstr("refuses")));
}

TEST(AdviseCommandTest, WrongQuestionsAreRefused) {
  const auto refusal = [](const Words& words) {
    const Outcome outcome = RunMoeplan(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refusal(Question({"--precision", "INT4"})), HasSubstr("--precision: found 'INT4', expected BF16"));
  EXPECT_THAT(refusal(Question({"--to", "nanotron"})), HasSubstr("--to: found 'nanotron', expected one of bridge"));
  EXPECT_THAT(refusal(Question({"--measured-step", "5"})), HasSubstr("--measured-step: found it without"));
  EXPECT_THAT(refusal(Question({"--gpus", "32"})), HasSubstr("--hardware"));
  EXPECT_THAT(refusal(Question({"--mine", "no_such_script.sh"})), HasSubstr("found none of Megatron Core's settings"));
  EXPECT_THAT(refusal(Question({"--mine", "--expert-model-parallel-size $EP"})),
              HasSubstr("which a shell would fill in"));
  EXPECT_THAT(refusal(Question({"--mine", "--expert-model-paralel-size 8"})), HasSubstr("did you mean"));
  EXPECT_THAT(refusal(Question({"--mine", "--expert-model-parallel-size 8 --global-batch-size 1024"})),
              HasSubstr("the question says 512"));
  EXPECT_THAT(refusal(Question({"--mine", "{\"expertParallel\": 8}", "--precision", "FP8"})), HasSubstr("--precision"));
  EXPECT_THAT(refusal(Question({"--mine", "{\"expertParallel\": 16}", "--measured-step", "0.1"})),
              HasSubstr("of their peak"));
  EXPECT_THAT(refusal(Question({"--to", "tutel"})), HasSubstr("which is a layer"));
  EXPECT_THAT(refusal({"check", "--to", "megatron", "--arguments", "hello world"}), HasSubstr("found none of"));
  EXPECT_THAT(refusal(Question({"--mine", "--tensor-model-parallel-size 3"})), HasSubstr("tensorParallel"));
  EXPECT_THAT(refusal({"export", "--to", "megatron"}), HasSubstr("expected --plan or --layout"));
  EXPECT_THAT(refusal({"export", "--to", "perfetto", "--layout", "{}"}), HasSubstr("expected it with --plan"));
  EXPECT_THAT(refusal({"export", "--to", "megatron", "--layout", "{}", "--target-version", "0.1"}),
              HasSubstr("--target-version: found '0.1'"));
  EXPECT_THAT(refusal({"check", "--to", "megatron"}), HasSubstr("expected --arguments or --config"));
  EXPECT_THAT(refusal({"check", "--to", "deepspeed", "--arguments", "--x"}), HasSubstr("takes no arguments"));
}

TEST(WhatIfCommandTest, DispatchersAreComparedAlongALayout) {
  const Words question = {"what-if",
                          "--hardware",
                          "h100-sxm",
                          "--model",
                          "qwen3-30b-a3b",
                          "--gpus",
                          "64",
                          "--global-batch",
                          "512",
                          "--sequence-length",
                          "4096",
                          "--layout",
                          R"({"expertParallel": 8, "recompute": "FULL"})"};
  Words words = question;
  words.insert(words.end(), {"--sweep", "expertParallel=8,16", "--dispatchers", "ALL_TO_ALL,DEEPEP", "--json"});
  const Outcome outcome = RunMoeplan(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json crossover = Json::parse(outcome.out);
  EXPECT_EQ(crossover.at("path"), "expertParallel");
  ASSERT_EQ(crossover.at("points").size(), 2u);
  for (const Json& point : crossover.at("points")) {
    ASSERT_EQ(point.at("steps").size(), 2u);
    const double all_to_all = point.at("steps")[0].at("stepTimeS"), deepep = point.at("steps")[1].at("stepTimeS");
    EXPECT_EQ(point.at("best"), all_to_all <= deepep ? "ALL_TO_ALL" : "DEEPEP");
    EXPECT_NEAR(point.at("ratio"), std::max(all_to_all, deepep) / std::min(all_to_all, deepep), 1e-9);
  }
  words = question;
  words.insert(words.end(), {"--sweep", "layer.batch=1,2"});
  const Outcome refused = RunMoeplan(words);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("expected one of microBatch="));
  EXPECT_EQ(RunMoeplan({"what-if", "--sweep", "layer.batch=1"}).exit_code, 2);
}

TEST(CheckCommandTest, ABrokenRuleIsNamedWithItsFlagsAndItsSource) {
  const Outcome outcome =
      RunMoeplan({"check", "--to", "megatron", "--gpus", "64", "--model", "qwen3-30b-a3b", "--arguments",
                  "--expert-model-parallel-size 24 --moe-token-dispatcher-type magic", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const Json checked = Json::parse(outcome.out);
  EXPECT_FALSE(checked.at("valid"));
  const Json& violations = checked.at("violations");
  const auto named = [&](const char* rule) {
    return std::ranges::find_if(violations, [&](const Json& one) { return one.at("rule") == rule; });
  };
  ASSERT_NE(named("value"), violations.end());
  ASSERT_NE(named("experts-divisible"), violations.end());
  EXPECT_THAT(named("experts-divisible")->at("source").get<std::string>(), HasSubstr("NVIDIA/Megatron-LM@"));
  EXPECT_THAT(named("experts-divisible")->at("flags").dump(), HasSubstr("--expert-model-parallel-size 24"));
}

TEST(ExportCommandTest, WhatTheSystemRefusesIsNotExported) {
  const Outcome outcome = RunMoeplan({"export", "--to", "megatron", "--model", "qwen3-30b-a3b", "--gpus", "64",
                                      "--layout", R"({"expertParallel": 24})", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(Json::parse(outcome.out).at("violations").dump(), HasSubstr("experts-divisible"));
}

TEST(ExportCommandTest, APlanIsSettingsOfALayerAndATrace) {
  const TemporaryFolder folder;
  const std::string examples = MOEPLAN_EXAMPLES;
  const Outcome plan = RunMoeplan({"plan", "--profile", examples + "/profile-8x8.json", "--workload",
                                   examples + "/mixtral-across-nodes.json", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const std::string file = folder.Write("plan.json", plan.out);
  const Outcome tutel = RunMoeplan({"export", "--to", "tutel", "--plan", file, "--json"});
  EXPECT_NE(tutel.exit_code, 2) << tutel.err;
  EXPECT_EQ(Json::parse(tutel.out).at("target"), "tutel");
  const Outcome trace = RunMoeplan({"export", "--to", "perfetto", "--plan", file});
  ASSERT_EQ(trace.exit_code, 0) << trace.err;
  EXPECT_FALSE(Json::parse(trace.out).at("traceEvents").empty());
}

}  // namespace
}  // namespace moeplan::testing
